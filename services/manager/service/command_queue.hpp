// Commands on their way to the writer, and the turns that their instances take.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "services/manager/storages/storage_worker.hpp"
#include "services/manager/writes/write_command.hpp"

namespace cenote::manager {

/// An outcome of a storage, and to which of the writer's states.
struct storage_news {
  std::uint64_t incarnation = 0;
  removal_outcome outcome{};
};

/// Commands and news for the writer. Thread-safe.
class command_inbox {
 public:
  struct mail {
    std::vector<std::unique_ptr<write_command>> commands{};
    std::vector<storage_news> news{};
    bool is_stopping = false;
  };

  /// Null: it is closed, and the command comes back.
  [[nodiscard]] std::unique_ptr<write_command> add(std::unique_ptr<write_command> command);
  void add(storage_news news);
  void close();
  /// All that came; waits for something until the deadline.
  [[nodiscard]] mail take(round_time deadline);

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  mail mail_;
};

/// Commands by instance. The writer's alone.
class command_queue {
 public:
  void add(std::unique_ptr<write_command> command);
  [[nodiscard]] bool empty() const noexcept { return turns_.empty(); }
  /// Lets commands advance, instance by instance, until the round has no keys left; those that are complete.
  [[nodiscard]] std::vector<std::unique_ptr<write_command>> advance(write_parts& parts, write_round& round);
  /// All that wait.
  [[nodiscard]] std::vector<std::unique_ptr<write_command>> take_all();

 private:
  using line = std::deque<std::unique_ptr<write_command>>;

  std::map<std::string, line, std::less<>> lines_;  ///< by instance
  std::deque<std::string> turns_;                   ///< instances that have a line, the next one first
};

}  // namespace cenote::manager
