// A client of managers over gRPC: it finds the leader, and repeats what may be repeated.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "transport/manager/client/call_failure.hpp"
#include "transport/manager/client/channel_table.hpp"
#include "transport/manager/client/client_options.hpp"
#include "transport/manager/rpc_table.hpp"

namespace cenote::manager {

/// Calls of MetaService go to the addresses `meta`, all others to `admin`. Calls block their thread; each ends within
/// `limits.call`. Thread-safe.
class manager_client {
 public:
  /// Connects with the first call. Errors: as of channel_table::make().
  [[nodiscard]] static result<std::unique_ptr<manager_client>> make(const client_options& options);

  /// `Request` and `Answer` are the messages of that call. The answer's code is OK.
  template <class Answer, class Request>
  [[nodiscard]] call_outcome<Answer> call(enum rpc name, const Request& request) {
    Answer answer;
    auto made = exchange(row_of(name), {.request = request, .answer = answer, .head = read_head<Answer>});
    if (!made) return std::unexpected(std::move(made.error()));
    return answer;
  }

 private:
  manager_client(const client_options& options, std::unique_ptr<channel_table> channels);

  template <class Answer, class Message>
  [[nodiscard]] static answer_head read_head(const Message& message) {
    const auto& header = static_cast<const Answer&>(message).header();
    return {.code = static_cast<answer_code>(header.status().code()),
            .message = header.status().message(),
            .leader = header.leader()};
  }

  [[nodiscard]] call_outcome<> exchange(const rpc_row& row, const call_messages& messages);
  /// The last leader first.
  [[nodiscard]] std::vector<std::string> route(rpc_face face);
  void remember(rpc_face face, const std::string& leader);
  [[nodiscard]] bool is_configured(const std::string& address) const;

  client_limits limits_;
  std::array<std::vector<std::string>, 2> addresses_;  ///< by face
  std::unique_ptr<channel_table> channels_;
  std::mutex mutex_;
  std::array<std::string, 2> leaders_;  ///< by face; empty: none has answered
};

}  // namespace cenote::manager
