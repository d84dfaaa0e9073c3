// Which session's batch a worker was carrying out when it died: finds batches that kill every worker (poison messages).
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "memory/segment.hpp"
#include "memory/store_point.hpp"

namespace cenote::memory {

/// First page of the records' segment, which no client ever maps. It names the session whose batch is being carried
/// out: after a worker's death the next one counts the death against that session. Zero in segments of older workers.
struct crash_page {
  static constexpr std::size_t counted = 32;
  struct count {
    std::atomic<std::uint64_t> session;  ///< 0: unused
    std::atomic<std::uint64_t> deaths;
  };
  segment_header header;
  alignas(64) std::atomic<std::uint64_t> under_way;  ///< session; 0: none
  alignas(64) count counts[counted];                 ///< sessions under way at a death, and no batch went well since
};
static_assert(sizeof(crash_page) <= page_bytes);

/// View of that page; the owner's thread only. A session that was under way at several deaths in a row, without a batch
/// of its own going well in between, is a suspect: the same batch would be read from its ring by every next worker.
class crash_guard {
 public:
  static constexpr std::uint64_t deaths_of_a_suspect = 2;

  explicit crash_guard(std::byte* page) noexcept : page_(reinterpret_cast<crash_page*>(page)) {}

  /// Once, when a worker takes the records over: counts the last worker's death against the session whose batch was
  /// under way, and returns that session; 0: none was.
  std::uint64_t count_death() noexcept;
  void begin(std::uint64_t session) noexcept {
    shared_store(page_->under_way, session, std::memory_order_release, "guard.begin"_point);
  }
  void end() noexcept { shared_store(page_->under_way, 0, std::memory_order_release, "guard.end"_point); }
  /// A batch of the session went well, or it is gone: its deaths do not count any more.
  void forget(std::uint64_t session) noexcept;
  [[nodiscard]] std::uint64_t deaths(std::uint64_t session) const noexcept;
  [[nodiscard]] bool is_suspect(std::uint64_t session) const noexcept { return deaths(session) >= deaths_of_a_suspect; }
  /// Sessions with deaths.
  [[nodiscard]] std::vector<std::uint64_t> counted() const;

 private:
  crash_page* page_;
  bool any_ = true;  ///< false: no session has deaths, so that forget() costs nothing
};

}  // namespace cenote::memory
