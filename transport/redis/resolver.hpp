// Names of hosts become addresses on a thread of its own: a name service that does not answer blocks no caller.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "core/endpoint.hpp"
#include "core/error.hpp"
#include "core/socket_address.hpp"

namespace cenote::redis {

/// The addresses of one host and port. At most one look-up is under way; one that hangs is left to its thread, which
/// owns what it needs, also when the resolver goes. Not thread-safe.
class resolver {
 public:
  /// `wake` is called on the look-up's thread when there is an answer to take, never after the destructor.
  resolver(endpoint place, std::function<void()> wake, name_lookup lookup = look_up);
  resolver(const resolver&) = delete;
  resolver& operator=(const resolver&) = delete;
  ~resolver();

  /// Begins a look-up, or leaves the one that is under way to go on. Errors: `system`, no thread can be had.
  [[nodiscard]] result<void> ask();
  /// The answer, once.
  [[nodiscard]] std::optional<result<socket_addresses>> take();

 private:
  struct shared;
  const endpoint place_;
  const std::shared_ptr<shared> shared_;
};

}  // namespace cenote::redis
