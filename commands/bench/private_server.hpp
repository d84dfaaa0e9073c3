// A Redis server of a bench's own.
#pragma once

#include <string>
#include <utility>

#include "commands/bench/support.hpp"
#include "core/error.hpp"
#include "keeper/child_process.hpp"

namespace cenote::bench {

/// On a Unix socket, without persistence; it ends with this object.
class private_server {
 public:
  /// Errors: unsupported, no server is installed; system, deadline_exceeded.
  [[nodiscard]] static result<private_server> start(const scratch_directory& directory);

  /// "unix://…", with the path of the socket.
  [[nodiscard]] std::string url() const { return "unix://" + socket_; }
  [[nodiscard]] const std::string& socket() const noexcept { return socket_; }

 private:
  private_server(child_process process, std::string socket)
      : process_(std::move(process)), socket_(std::move(socket)) {}

  [[nodiscard]] result<void> wait_until_it_answers();

  child_process process_;
  std::string socket_;
};

}  // namespace cenote::bench
