// Measures all candidates for copies and checksums over memory that is in no cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/error.hpp"
#include "core/machine_decisions.hpp"

namespace cenote {

/// Pages of one kind. Move-only.
class measured_memory {
 public:
  enum class kind : std::uint8_t { shared_small, shared_huge, process };  ///< process: private pages

  /// Errors: system: no memory, or no huge pages.
  [[nodiscard]] static result<measured_memory> make(kind pages, std::size_t bytes);
  measured_memory(measured_memory&& other) noexcept;
  measured_memory& operator=(measured_memory&& other) noexcept;
  measured_memory(const measured_memory&) = delete;
  measured_memory& operator=(const measured_memory&) = delete;
  ~measured_memory();

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, size_}; }

 private:
  measured_memory(std::byte* data, std::size_t size) noexcept : data_(data), size_(size) {}

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Removes memory from all caches; on a processor without instructions for that, by reading other memory.
void evict(std::span<const std::byte> memory) noexcept;

/// Measures over 24 MiB of memory, 32 MiB where there are huge pages. Each candidate has several passes, each over
/// another piece, and its fastest one counts: noise makes a pass slower, never faster. A pass that was preempted is
/// repeated. A round of all cases takes 50 ms of processor time. Not thread-safe.
class copy_measurement {
 public:
  /// Errors: system: no memory.
  [[nodiscard]] static result<copy_measurement> make();

  /// False for huge pages that the machine has not.
  [[nodiscard]] bool has(copy_case kind) const noexcept;
  /// Rates of all candidates; empty without the memory for it, see has().
  [[nodiscard]] std::vector<candidate_rate> rates_of(copy_case kind, unsigned passes = default_passes);
  /// Rates of copies of `measured_sizes` by the copy_routine of this number.
  [[nodiscard]] std::vector<size_rate> sizes_of(copy_case kind, std::uint8_t routine);

  static constexpr unsigned default_passes = 3;
  static constexpr std::size_t piece_bytes = std::size_t{1} << 20;

 private:
  struct sides {
    std::span<std::byte> source, target;
  };
  copy_measurement(measured_memory small, measured_memory process, std::optional<measured_memory> huge) noexcept;

  [[nodiscard]] sides sides_of(copy_case kind) const noexcept;
  /// Next piece of both sides, in no cache.
  [[nodiscard]] sides next_piece(const sides& whole) noexcept;
  /// Duration of a pass that was not preempted, if there is one among a few.
  [[nodiscard]] double seconds_of(copy_case kind, std::uint8_t candidate, std::size_t call_bytes);
  [[nodiscard]] double seconds_of_pass(copy_case kind, std::uint8_t candidate, std::size_t call_bytes);

  measured_memory small_;
  measured_memory process_;
  std::optional<measured_memory> huge_;
  std::size_t next_ = 0;     ///< offset of the next piece
  copy_case evicted_for_{};  ///< the case whose memory is in no cache from `next_` on
};

/// Measures and judges a round of all cases. Returns whether any choice changed. Errors: system: no memory.
[[nodiscard]] result<bool> measure_round(machine_decisions& decisions);

}  // namespace cenote
