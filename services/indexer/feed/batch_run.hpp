// The batches of one life of a publisher that were applied one behind the other, and the fingerprints of the newest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cenote::indexer {

/// Numbers of a run: `base` ≤ what was confirmed ≤ `next`. All operations take constant time, whatever the numbers are.
/// Not thread-safe.
class batch_run {
 public:
  enum class likeness : std::uint8_t { unknown, equal, different };

  explicit batch_run(std::size_t recent) : capacity_(recent == 0 ? 1 : recent) {}

  /// Nothing is applied.
  void forget() noexcept;
  /// `first` is the next batch to be applied, and nothing is there before.
  void begin(std::uint64_t first) noexcept;
  /// The same behind a snapshot: all before `first` is there, without fingerprints.
  void adopt(std::uint64_t first) noexcept;
  /// The batch next() was applied.
  void append(std::uint64_t fingerprint);
  /// One answer had all batches before `end` that this run has.
  void confirm(std::uint64_t end) noexcept;

  [[nodiscard]] likeness compare(std::uint64_t seq, std::uint64_t fingerprint) const noexcept;
  /// The batch at which an answer has to begin to prove that the run is of the publisher's present life: the last one
  /// that was confirmed, as far as fingerprints reach (`reaches_back` false: the newest). None: nothing can prove it.
  [[nodiscard]] std::optional<std::uint64_t> proof(bool reaches_back) const noexcept;

  [[nodiscard]] bool exists() const noexcept { return exists_; }
  [[nodiscard]] bool is_adopted() const noexcept { return is_adopted_; }
  [[nodiscard]] bool is_next(std::uint64_t seq) const noexcept { return exists_ && seq == next_; }
  [[nodiscard]] std::uint64_t base() const noexcept { return base_; }
  /// 0 if there is none.
  [[nodiscard]] std::uint64_t next() const noexcept { return next_; }

 private:
  struct record {
    std::uint64_t seq = 0, fingerprint = 0;
  };
  [[nodiscard]] bool has(std::uint64_t seq) const noexcept;

  std::size_t capacity_;
  std::vector<record> records_{};  ///< a batch's place is its number modulo the size
  bool exists_ = false, is_adopted_ = false;
  std::uint64_t base_ = 0, confirmed_ = 0, next_ = 0;
};

}  // namespace cenote::indexer
