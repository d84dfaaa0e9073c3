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

  [[nodiscard]] const std::string& url() const noexcept { return url_; }

 private:
  private_server(child_process process, std::string url) : process_(std::move(process)), url_(std::move(url)) {}

  [[nodiscard]] result<void> wait_until_it_answers(const std::string& socket);

  child_process process_;
  std::string url_;
};

}  // namespace cenote::bench
