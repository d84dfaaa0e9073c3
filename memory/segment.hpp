// A sealed shared-memory segment (memfd) and its mapping.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "memory/store_point.hpp"

namespace cenote::memory {

inline constexpr std::uint64_t segment_magic = 0x00544745534e4543;  // "CENSEGT"
inline constexpr std::uint32_t layout_version = 1;                  ///< of every segment of this build
inline constexpr std::uint64_t page_bytes = 4096;

enum class segment_kind : std::uint32_t { records = 1, versions = 2, index = 3, slab = 4, session = 5 };

/// Stands in the first page of every segment (of a slab: in its last page, so that blocks start aligned).
///
///   0        8         12     16     24        32
///   | magic  | version | kind | size | retired | … 64
struct segment_header {
  std::uint64_t magic = 0;
  std::uint32_t version = 0;
  std::uint32_t kind = 0;
  std::uint64_t size = 0;              ///< of the whole segment, bytes
  std::atomic<std::uint64_t> retired;  ///< not 0: a newer node replaced it; nothing in it is valid any more
  std::uint64_t spare[4];
};
static_assert(sizeof(segment_header) == 64);

enum class access : std::uint8_t { read_only, read_write };

/// Owns a memfd and one mapping of all of it. Move-only; the mapped bytes may be shared between threads and
/// processes as their layout says.
class segment {
 public:
  segment() noexcept = default;
  segment(segment&& other) noexcept;
  segment& operator=(segment&& other) noexcept;
  segment(const segment&) = delete;
  segment& operator=(const segment&) = delete;
  ~segment();

  /// A new segment of `bytes` (sparse: memory is taken when touched), mode 0600, sealed against shrinking, growing and
  /// further seals. FUTURE_WRITE is left out: a restarted worker could not map it again. `huge`: 2 MiB pages;
  /// fails with `system` when the machine has not enough of them. Not dumped into core files.
  static result<segment> create(const std::string& name, std::uint64_t bytes, bool huge = false);

  /// Maps a descriptor that came from elsewhere, after checking that it has exactly `bytes` and cannot shrink.
  static result<segment> map(unique_fd fd, std::uint64_t bytes, access how);

  /// A second description of the same memory, opened read-only: what clients get of index and versions.
  [[nodiscard]] result<unique_fd> read_only_descriptor() const;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] const unique_fd& fd() const noexcept { return fd_; }
  [[nodiscard]] explicit operator bool() const noexcept { return data_ != nullptr; }

  /// Clients: a forked child does not inherit the mapping. The pid check of every call rests on it.
  void keep_from_children() const noexcept;
  /// Touches the pages of [offset, offset+bytes) without changing them. False when the kernel cannot (before 5.14)
  /// or has no memory left.
  bool populate(std::uint64_t offset, std::uint64_t bytes, access how) const noexcept;
  /// Gives the memory of [offset, offset+bytes) back; it reads as zero afterwards.
  void punch(std::uint64_t offset, std::uint64_t bytes, store_point at = no_point) const noexcept;
  /// Gives up the address space of all but [offset, offset+bytes), whole pages: only that may be touched from now on.
  void narrow(std::uint64_t offset, std::uint64_t bytes) noexcept;
  /// Prefers the pages of NUMA node `node`. False when the kernel refuses.
  bool bind_to_node(int node) const noexcept;
  /// Asks for transparent huge pages, where shmem has them.
  void advise_huge() const noexcept;

 private:
  segment(unique_fd fd, std::byte* data, std::uint64_t size) noexcept
      : fd_(std::move(fd)), data_(data), size_(size), mapped_end_(size) {}
  void unmap() noexcept;

  unique_fd fd_;
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  std::uint64_t mapped_from_ = 0, mapped_end_ = 0;  ///< what narrow() left
};

/// Writes a fresh header.
void write_header(segment_header& header, segment_kind kind, std::uint64_t size) noexcept;
/// Refuses another magic, version, kind or size, saying which.
[[nodiscard]] result<void> check_header(const segment_header& header, segment_kind kind, std::uint64_t size);

}  // namespace cenote::memory
