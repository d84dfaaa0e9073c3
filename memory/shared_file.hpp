// A sealed memory file that several processes map.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "memory/store_point.hpp"

namespace cenote::memory {

enum class access : std::uint8_t { read_only, read_write };
enum class sealing : std::uint8_t { now, later };

/// Owns the descriptor of a memfd of fixed size. Move-only; maps nothing.
class shared_file {
 public:
  shared_file() noexcept = default;

  /// A new file of `bytes` (sparse: memory is taken when touched), mode 0600, sealed against shrinking, growing and
  /// further seals. FUTURE_WRITE is left out: a restarted worker could not map it again. `huge`: 2 MiB pages. Sealed
  /// `later`: by settle().
  static result<shared_file> create(const std::string& name, std::uint64_t bytes, bool huge = false,
                                    sealing when = sealing::now);

  /// Gives a file that is not sealed its last size, and seals it.
  result<void> settle(std::uint64_t bytes);

  /// Takes a descriptor that came from elsewhere, after checking that it has exactly `bytes` and cannot shrink.
  static result<shared_file> adopt(unique_fd fd, std::uint64_t bytes);
  /// The same of a file that nobody sealed yet, whatever its size.
  static result<shared_file> adopt_unsealed(unique_fd fd);

  /// A second description of the same memory, opened read-only: what clients get of index and versions.
  [[nodiscard]] result<unique_fd> read_only_descriptor() const;

  [[nodiscard]] const unique_fd& fd() const noexcept { return fd_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  /// Gives the memory of [offset, offset+bytes) back; it reads as zero afterwards.
  void punch(std::uint64_t offset, std::uint64_t bytes, store_point point = no_point) const noexcept;

 private:
  shared_file(unique_fd fd, std::uint64_t size) noexcept : fd_(std::move(fd)), size_(size) {}

  unique_fd fd_;
  std::uint64_t size_ = 0;
};

}  // namespace cenote::memory
