// A sealed shared-memory segment (memfd), mapped whole, and what stands at its beginning.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "memory/shared_file.hpp"
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

  /// A new file of `bytes`, mapped; see shared_file::create. `huge` fails with `system` when the machine has not enough
  /// pages of 2 MiB. Not dumped into core files.
  static result<segment> create(const std::string& name, std::uint64_t bytes, bool huge = false,
                                sealing when = sealing::now);

  /// Maps a descriptor that came from elsewhere; see shared_file::adopt.
  static result<segment> map(unique_fd fd, std::uint64_t bytes, access mode);

  /// Maps a file that is not sealed yet, to be written.
  static result<segment> map_unsealed(unique_fd fd);

  /// Gives a segment whose file is not sealed its last size, and seals it. What was touched stays touched and mapped;
  /// data() may move. After an error nothing is mapped.
  result<void> settle(std::uint64_t bytes);

  [[nodiscard]] result<unique_fd> read_only_descriptor() const { return file_.read_only_descriptor(); }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return file_.size(); }
  [[nodiscard]] const unique_fd& fd() const noexcept { return file_.fd(); }
  [[nodiscard]] explicit operator bool() const noexcept { return data_ != nullptr; }

  /// Clients: a forked child does not inherit the mapping. The pid check of every call rests on it.
  void keep_from_children() const noexcept;
  /// populate_pages() of [offset, offset+bytes).
  bool populate(std::uint64_t offset, std::uint64_t bytes, access mode) const noexcept;
  /// See shared_file::punch.
  void punch(std::uint64_t offset, std::uint64_t bytes, store_point point = no_point) const noexcept {
    file_.punch(offset, bytes, point);
  }
  /// Prefers the pages of NUMA node `node`. False when the kernel refuses.
  bool bind_to_node(int node) const noexcept;
  /// Asks for transparent huge pages, where shmem has them.
  void advise_huge() const noexcept;

 private:
  segment(shared_file file, std::byte* data) noexcept : file_(std::move(file)), data_(data) {}
  void unmap() noexcept;

  shared_file file_;
  std::byte* data_ = nullptr;
};

/// Bytes of a page of this machine's kernel: not 4096 on some of Arm's.
[[nodiscard]] std::uint64_t kernel_page_bytes() noexcept;
/// Refuses (unsupported, with the numbers) a kernel whose pages are larger than the layout's: parts of a segment begin
/// on multiples of page_bytes, and could not be mapped.
[[nodiscard]] result<void> check_kernel_pages(std::uint64_t bytes = kernel_page_bytes());

/// Touches whole pages without changing them. False when the kernel cannot (before 5.14) or has no memory left.
bool populate_pages(std::span<std::byte> pages, access mode) noexcept;

/// Writes a fresh header.
void write_header(segment_header& header, segment_kind kind, std::uint64_t size) noexcept;
/// Refuses another magic, version, kind or size, saying which.
[[nodiscard]] result<void> check_header(const segment_header& header, segment_kind kind, std::uint64_t size);

}  // namespace cenote::memory
