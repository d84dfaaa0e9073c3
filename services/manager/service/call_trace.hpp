// Lookups and writes as lines of JSON, for the optimizer and for people.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "services/manager/index/key.hpp"
#include "services/manager/registry/terms.hpp"
#include "transport/manager/proto/meta.pb.h"

namespace cenote::manager {

/// A file of calls in the form of the Tair KVCache Manager's publisher log: a line for each GetCacheLocation,
/// StartWriteCache and FinishWriteCache that was answered with OK. A thread writes; what finds no room before it is
/// dropped and counted, and no call waits. At `most_file_bytes` the file is renamed to `.1`, that one to `.2`, up to
/// `kept_files`. Keys of 16 bytes are folded to 8, which differ where blocks do. Thread-safe.
class call_trace {
 public:
  static constexpr std::size_t most_waiting_bytes = std::size_t{16} << 20U;
  static constexpr std::uint64_t default_file_bytes = std::uint64_t{256} << 20U;
  static constexpr int kept_files = 4;

  /// To be called when a write has its session, on any thread.
  using start_note = std::function<void(std::string_view session)>;

  /// Errors: `path` cannot be opened for appending.
  [[nodiscard]] static result<std::unique_ptr<call_trace>> open(std::string path,
                                                                std::uint64_t most_file_bytes = default_file_bytes);
  call_trace(const call_trace&) = delete;
  call_trace& operator=(const call_trace&) = delete;
  /// Writes what waits.
  ~call_trace();

  /// `keys`: those that were looked up, without masked ones.
  void note_lookup(std::string_view instance, query_kind kind, std::int64_t window, std::span<const cache_key> keys);
  [[nodiscard]] start_note start_of(std::string_view instance, std::span<const cache_key> keys);
  /// To be called when the session has ended.
  [[nodiscard]] std::function<void()> finish_of(
      const ::kv_cache_manager::proto::meta::FinishWriteCacheRequest& request);
  /// Lines that found no room, or that could not be written.
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }

 private:
  call_trace(std::string path, std::uint64_t most_file_bytes, unique_fd file, std::uint64_t file_bytes);

  void add(std::string_view line);
  void run();
  void write(std::string_view lines);
  void rotate();

  const std::string path_;
  const std::uint64_t most_file_bytes_;
  std::atomic<std::uint64_t> dropped_{0}, next_number_{1};
  std::mutex mutex_;
  std::condition_variable arrival_;
  std::string waiting_;
  bool is_stopping_ = false;
  unique_fd file_;  ///< with `file_bytes_` the thread's
  std::uint64_t file_bytes_ = 0;
  std::thread thread_;
};

}  // namespace cenote::manager
