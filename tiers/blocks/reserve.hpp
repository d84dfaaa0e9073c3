// Memory that is touched before anybody asks for it: a fresh page costs microseconds, and a slab has thousands.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tiers/blocks/slab.hpp"

namespace cenote::blocks {

/// How far the memory of the tier is touched.
struct populate_status {
  enum class phase : std::uint8_t { off, going_on, short_of_memory, failed, done };
  phase at = phase::off;
  std::uint64_t bytes = 0;  ///< touched: of slabs, and of the reserve
  std::uint64_t total = 0;  ///< of slabs that there are or can be
  std::uint64_t ready = 0;  ///< … of that, in the reserve
};
[[nodiscard]] std::string_view name_of(populate_status::phase phase) noexcept;

/// Said once each time that it becomes so; what comes and goes in small pieces later is not said.
struct populate_report {
  populate_status status;
  std::chrono::steady_clock::duration took{};  ///< done
  std::string reason;                          ///< short_of_memory, failed
};

struct reserve_options {
  std::uint64_t capacity = 0;  ///< bytes of slabs and reserve together
  std::uint64_t piece = 0;     ///< bytes; see usual_slab_bytes()
  std::size_t most_pieces = 0;
  bool huge_pages = true;
  int numa_node = -1;
  /// Bytes that can be taken without harm, asked before each step. Empty: as many as one likes.
  std::function<std::uint64_t()> room = {};
  /// Makes a piece that is touched survive this process.
  std::function<result<void>(std::uint64_t id, const unique_fd&)> keep = {};
  std::function<void(std::uint64_t id)> drop = {};
  std::function<void(const populate_report&)> report = {};
};

/// Pieces of memory for slabs of the usual size, as many as slabs leave room for, made and touched by a thread of its
/// own with low priority, 2 MiB at a time. What is touched before a worker dies the next one is given.
///
/// Thread-safe but for start().
class reserve {
 public:
  struct piece {
    std::uint64_t id = 0;
    spare_memory memory;
  };

  explicit reserve(reserve_options options);
  reserve(const reserve&) = delete;
  reserve& operator=(const reserve&) = delete;
  /// Waits for one step at most.
  ~reserve();

  /// `held`: what an earlier worker touched. Before, nothing is touched.
  void start(std::vector<piece> held);

  /// Memory for a slab of `bytes`, which count from now on; nothing when none is ready. It is the keeper's no more.
  [[nodiscard]] std::optional<spare_memory> take(std::uint64_t bytes, std::uint64_t huge_bytes);
  /// A slab of `bytes` is there that was not taken here; or is gone.
  void slab_found(std::uint64_t bytes);
  void slab_gone(std::uint64_t bytes);

  /// Of which slabs that are not touched yet are to be subtracted.
  [[nodiscard]] populate_status status() const;

 private:
  void run();
  void turn(std::unique_lock<std::mutex>& lock);
  void shrink(std::unique_lock<std::mutex>& lock);
  void grow(std::unique_lock<std::mutex>& lock);
  [[nodiscard]] result<bool> step(std::uint64_t offset);
  [[nodiscard]] result<void> finish();
  [[nodiscard]] std::uint64_t ready_bytes() const noexcept { return ready_.size() * options_.piece; }
  [[nodiscard]] bool has_room() const noexcept;
  [[nodiscard]] bool is_over() const noexcept;
  [[nodiscard]] populate_status look() const;
  void enter(std::unique_lock<std::mutex>& lock, populate_status::phase next, std::string reason = {});

  reserve_options options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::deque<piece> ready_;
  std::uint64_t slab_bytes_ = 0;
  std::uint64_t touched_ = 0;  ///< of the piece in the making
  populate_status::phase phase_ = populate_status::phase::going_on;
  std::optional<populate_status::phase> said_;
  std::chrono::steady_clock::time_point begun_;
  // The thread's own.
  spare_memory making_;
  std::uint64_t next_id_ = 1;
  std::thread thread_;
};

}  // namespace cenote::blocks
