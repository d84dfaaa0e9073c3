// A manager of the bench's own process, asked without a transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <semaphore>
#include <string>

#include "commands/bench/manager/chains.hpp"
#include "commands/bench/support.hpp"
#include "core/error.hpp"
#include "services/manager/service/call_desk.hpp"

namespace cenote::bench {

struct manager_content {
  double keys = 0;
  double bytes = 0;  ///< of blocks
};

/// A group with one storage of files, whose blocks nothing writes. One thread uses its desk; others make their own from
/// parts().
class private_manager {
 public:
  /// `folder` outlives it.
  explicit private_manager(const scratch_directory& folder) : folder_(folder) {}

  /// Starts it and waits until it has recovered, which it gives in seconds. Errors: deadline_exceeded, interrupted.
  [[nodiscard]] result<double> open(manager::journal_opener open_journal);
  void close() noexcept;
  /// Makes the storage, the group and the instances.
  [[nodiscard]] result<void> set_up();
  /// Its keys and bytes by its own figures, once there are any. Errors: deadline_exceeded, interrupted.
  [[nodiscard]] result<manager_content> content();
  /// Replaces the group's quota. Deletions wait for longer than a bench runs.
  [[nodiscard]] result<void> limit_bytes(std::int64_t capacity);
  /// Writes chains [first, end) in sessions of 100 to 1,000 keys.
  [[nodiscard]] result<void> fill(chain_kind kind, std::uint64_t first, std::uint64_t end);

  [[nodiscard]] std::string rows_path() const { return folder_ / "journal"; }
  /// Of RocksDB, in its folder.
  [[nodiscard]] manager::journal_opener own_journal() const;
  [[nodiscard]] const manager::face_parts& parts() const noexcept { return *parts_; }
  [[nodiscard]] manager::manager_writer& writer() noexcept { return *writer_; }
  [[nodiscard]] manager::call_desk& desk() noexcept { return *desk_; }
  [[nodiscard]] manager::meta_calls& reads() noexcept { return *reads_; }

  /// Asks and waits for the answer's bytes; they are empty where the call was not understood.
  template <class Request>
  [[nodiscard]] std::string ask(enum manager::rpc name, const Request& request) {
    std::string body, answer;
    manager::append_message(request, manager::answer_form::wire, body);
    std::binary_semaphore is_there(0);
    const auto called = desk_->call(manager::row_of(name), manager::answer_form::wire, body, {},
                                    [&](const manager::answer_writer& write) {
                                      write(manager::answer_form::wire, answer);
                                      is_there.release();
                                    });
    if (called) is_there.acquire();
    return answer;
  }
  /// Errors: internal: the code of the answer is not OK.
  template <class Response, class Request>
  [[nodiscard]] result<Response> call(enum manager::rpc name, const Request& request) {
    Response response;
    if (!response.ParseFromString(ask(name, request))) return fail(error_code::internal, "an answer cannot be read");
    const auto& status = response.header().status();
    if (status.code() != manager::proto::OK) return fail(error_code::internal, status.message());
    return response;
  }

  /// Writes those of the first `keys` keys of a chain that are not there yet.
  [[nodiscard]] result<void> write_chain(chain_kind kind, std::uint64_t chain, std::size_t keys = chain_keys);

 private:
  [[nodiscard]] result<void> add_instance(chain_kind kind, std::uint64_t chain);

  const scratch_directory& folder_;
  std::int64_t version_ = 1;  ///< of the group
  manager::call_settings settings_;
  manager::call_counts counts_;
  manager::call_log log_;
  manager::access_desk access_{manager::access_settings{}};
  std::unique_ptr<manager::manager_writer> writer_;
  std::optional<manager::face_parts> parts_;
  std::unique_ptr<manager::call_desk> desk_;
  std::unique_ptr<manager::meta_calls> reads_;
};

}  // namespace cenote::bench
