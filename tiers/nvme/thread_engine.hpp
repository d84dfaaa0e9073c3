// Transfers by threads that wait for them: for kernels and containers without io_uring.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "tiers/nvme/io.hpp"
#include "tiers/nvme/path_file.hpp"
#include "tiers/nvme/request_queue.hpp"

namespace cenote::nvme {

/// A thread a transfer in flight, at most `most_threads`. The callback is never run by two of them at once. What is
/// submitted after stop() returned is forgotten.
class thread_engine final : public io_engine {
 public:
  static constexpr unsigned most_threads = 32;

  /// The file must live longer than the engine. Errors: system.
  [[nodiscard]] static result<std::unique_ptr<thread_engine>> create(const path_file& file,
                                                                     const engine_options& options, callback done);
  thread_engine(const thread_engine&) = delete;
  thread_engine& operator=(const thread_engine&) = delete;
  ~thread_engine() override { thread_engine::stop(); }

  void submit(std::span<const io_request> batch) override;
  void stop() noexcept override;
  [[nodiscard]] std::string_view name() const noexcept override { return "threads"; }

 private:
  thread_engine(const path_file& file, callback done, exception_callback on_exception)
      : descriptor_(file.descriptor()),
        file_bytes_(file.bytes()),
        done_(std::move(done)),
        on_exception_(std::move(on_exception)) {}

  void run();
  bool step(std::optional<io_completion>& ended);
  [[nodiscard]] io_completion transfer(const io_request& request) const;

  const int descriptor_;
  const std::uint64_t file_bytes_;
  const callback done_;
  const exception_callback on_exception_;
  std::mutex mutex_;
  std::condition_variable wake_;
  request_queue waiting_;
  bool stopping_ = false;
  std::mutex callback_mutex_;
  std::mutex stop_mutex_;
  std::vector<std::thread> threads_;
};

}  // namespace cenote::nvme
