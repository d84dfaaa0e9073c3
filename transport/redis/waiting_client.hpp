// One server, asked by a thread that waits for the replies.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "transport/redis/resolver.hpp"
#include "transport/redis/server_connection.hpp"
#include "transport/redis/server_url.hpp"
#include "transport/redis/steady_time.hpp"

namespace cenote::redis {

/// A command without a value, and its place among those of a call.
struct piped_command {
  static constexpr std::size_t header_bytes = 0;
  static constexpr bool takes_lists = true;

  std::string head{};
  std::size_t index = 0;
  std::size_t most_reply_bytes = 0;
  std::size_t size = 0;
  bool has_body = false;
  std::span<std::byte> memory{};
  std::string_view tail{};
  steady_time sent{};
  steady_time deadline = steady_time::max();
  bool is_answered = false, has_run_over = false;

  [[nodiscard]] std::size_t wire_bytes() const noexcept { return head.size(); }
  [[nodiscard]] std::size_t value_bytes() const noexcept { return 0; }
  [[nodiscard]] bool awaits_value() const noexcept { return false; }
  void abandon() noexcept { is_answered = true; }
};

extern template class server_connection<piped_command>;

/// The way to one server.
struct server_access {
  server_address address{};
  std::string user{};                   ///< empty: the server's default user
  std::filesystem::path credentials{};  ///< file with a password; empty: none is asked for
  std::uint32_t database = 0;
  std::optional<tls::client_settings> tls{};
};

struct waiting_options {
  std::size_t most_reply_bytes = std::size_t{1} << 20U;  ///< of one command; more is an error of the connection
  std::stop_token stop{};                                ///< ends what waits, as if it were late
};

/// Connects when it is first asked, and again after each failure. For one thread at a time, which waits in run() alone.
class waiting_client {
 public:
  /// Called with the place of a command and its reply, in the order of the commands.
  using reply_receiver = std::function<void(std::size_t index, const server_reply& reply)>;

  /// Errors: system: no descriptor can be had.
  [[nodiscard]] static result<waiting_client> make(server_access access, waiting_options options = {});

  /// Sends the commands in a pipeline and waits for their replies. Errors: deadline_exceeded, and what connecting,
  /// greeting and the connection met; the connection is closed then, and of the commands any number was carried out.
  /// Replies that are errors of a command go to the receiver.
  [[nodiscard]] result<void> run(std::span<const std::string> commands, steady_time deadline,
                                 const reply_receiver& receiver);
  void close();
  /// False after a failure, until the next call connects again.
  [[nodiscard]] bool is_connected() const noexcept { return is_greeted_; }
  /// Connections that were greeted, since the start.
  [[nodiscard]] std::uint64_t connections() const noexcept { return connections_; }

 private:
  waiting_client(server_access access, waiting_options options, unique_fd wake);

  [[nodiscard]] result<void> open(steady_time deadline);
  [[nodiscard]] result<socket_addresses> addresses(steady_time deadline);
  [[nodiscard]] result<void> greet(steady_time deadline);
  [[nodiscard]] result<void> exchange(std::span<const std::string> commands, steady_time deadline,
                                      const reply_receiver& receiver);

  server_access access_;
  waiting_options options_;
  std::shared_ptr<unique_fd> wake_;  ///< readable when a name has its address
  std::unique_ptr<resolver> names_;
  std::unique_ptr<server_connection<piped_command>> connection_;
  std::size_t attempts_ = 0;
  std::uint64_t connections_ = 0;
  bool is_greeted_ = false;
};

}  // namespace cenote::redis
