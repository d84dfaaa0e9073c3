// A node of the bench's own, in a directory that goes away with it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "commands/child_process.hpp"
#include "core/error.hpp"

namespace cenote::bench {

/// Not thread-safe. Destroying it stops the node and removes its directory.
class private_node {
 public:
  /// Starts `cenote node` with a DRAM tier of `capacity` bytes and waits until it answers. `sets`: further key=value.
  /// The process must have no other thread yet.
  [[nodiscard]] static result<std::unique_ptr<private_node>> start(std::uint64_t capacity,
                                                                   const std::vector<std::string>& sets);

  private_node(const private_node&) = delete;
  private_node& operator=(const private_node&) = delete;
  ~private_node();

  [[nodiscard]] const std::string& socket() const noexcept { return socket_; }

 private:
  private_node(std::string directory, child_process process);
  [[nodiscard]] result<void> wait_until_it_answers();

  std::string directory_;
  std::string socket_;
  child_process process_;
};

}  // namespace cenote::bench
