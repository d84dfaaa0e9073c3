// A node of a command's own, in a directory that goes away with it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "keeper/child_process.hpp"

namespace cenote {

/// Not thread-safe. Destroying it stops the node and removes its directories.
class private_node {
 public:
  struct setup {
    std::string purpose;                   ///< in the directory's name: cenote-PURPOSE-XXXXXX
    std::uint64_t dram = 0;                ///< bytes of the DRAM tier
    std::uint64_t nvme = 0;                ///< bytes of the NVMe tier; 0: none
    std::string nvme_at = {};              ///< the directory that its directory is made in; empty: the node's own
    std::vector<std::string> remote = {};  ///< places outside the machine (remote.backends)
    std::vector<std::string> sets = {};    ///< further key=value
    bool only_launch = false;              ///< do not wait until it answers
    bool own_log = false;  ///< the log goes to a file of the directory: log_tail(); and ctrl-C is not for it
  };

  /// Starts `cenote node` and waits until it answers. The process must have no other thread yet.
  [[nodiscard]] static result<std::unique_ptr<private_node>> start(const setup& setup);

  private_node(const private_node&) = delete;
  private_node& operator=(const private_node&) = delete;
  ~private_node();

  [[nodiscard]] const std::string& socket() const noexcept { return socket_; }
  /// How the node ended, if it has.
  [[nodiscard]] std::optional<process_end> ended() noexcept { return process_->ended(); }
  /// The last lines of its log; empty without a log of its own.
  [[nodiscard]] std::string log_tail() const;

  [[nodiscard]] result<void> wait_until_it_answers();

  /// Ends keeper and worker with SIGKILL, as when a machine is lost: neither hears of the other's death. `worker`: its
  /// pid, 0 where none is known.
  void kill(pid_t worker);
  /// Starts the node again where it was, after it has ended, and does not wait for its answer.
  [[nodiscard]] result<void> start_again();

 private:
  private_node(std::vector<std::string> directories, std::vector<std::string> command, bool own_log);
  [[nodiscard]] result<void> launch();

  std::vector<std::string> directories_;  ///< the first one is the node's
  std::string socket_;
  std::vector<std::string> command_;
  bool own_log_;
  std::optional<child_process> process_;
};

}  // namespace cenote
