// A listening socket that UCX has made and does not show, as the kernel knows it.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "core/endpoint.hpp"
#include "core/unique_fd.hpp"

namespace cenote::ucx {

/// UCX 1.13 calls on a listener that is gone for connections that it had taken from its socket and that had not said
/// yet what they are, from a thread of its own. So none may be left when a listener ends. Not thread-safe.
class listening_socket {
 public:
  /// The socket of this process that listens at `where`; none: there is no such socket, or it cannot be found.
  [[nodiscard]] static std::optional<listening_socket> find(const endpoint& where);

  /// Who wants to connect from now on is not heard, and tries again.
  void refuse();
  /// Connections that wait to be taken, or were taken and are open.
  [[nodiscard]] bool is_in_use() const;
  /// Ends those that were taken.
  void hang_up() const;

 private:
  listening_socket(unique_fd socket, endpoint where) : socket_(std::move(socket)), where_(std::move(where)) {}
  [[nodiscard]] std::vector<unique_fd> taken() const;

  unique_fd socket_;  ///< a second descriptor of it
  endpoint where_;
};

}  // namespace cenote::ucx
