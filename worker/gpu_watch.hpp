// Asks the GPUs' driver which processes it still lists, on a thread of its own: who asks here never waits for a driver.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "core/error.hpp"
#include "device/nvml.hpp"

namespace cenote {

/// What is known of a process, from a look that began after it was asked for.
enum class gpu_answer : std::uint8_t {
  unknown,       ///< no look has ended yet
  listed,        ///< it has a context on some GPU
  gone,          ///< it has none
  nobody_knows,  ///< there is no driver that could be asked, or no number to ask for
};

/// Thread-safe. The driver is opened when somebody may have to be asked for, and given up when nobody is asked for any
/// more: it may be loaded only while somebody uses it.
class gpu_watch {
 public:
  using opener = std::function<result<std::unique_ptr<gpu_processes>>()>;

  /// `pause`: between two looks.
  explicit gpu_watch(
      opener open = [] { return open_nvml(); }, std::chrono::milliseconds pause = std::chrono::seconds(1));
  gpu_watch(const gpu_watch&) = delete;
  gpu_watch& operator=(const gpu_watch&) = delete;
  /// Waits a second at most for a thread that waits for a driver; then that stays behind, and touches nothing of ours.
  ~gpu_watch();

  /// Somebody will be asked for later: finds out whether there is a driver.
  void prepare();
  /// What is known now; the first question about a process has it looked for. `gone` ends that. 0: a process
  /// of a PID namespace that this one does not see.
  [[nodiscard]] gpu_answer ask(pid_t process);
  /// Nobody asks for it any more.
  void forget(pid_t process);

 private:
  struct state;
  void start();
  static void run(const std::shared_ptr<state>& shared);
  static void look(state& all, gpu_processes& at);

  std::shared_ptr<state> shared_;
  std::thread thread_;
};

}  // namespace cenote
