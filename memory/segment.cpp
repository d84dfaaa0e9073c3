#include "memory/segment.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace cenote::memory {

namespace {

// Newer than bookworm's headers in part; the kernel answers EINVAL where it does not know them.
constexpr int madv_populate_read = 22;
constexpr int madv_populate_write = 23;
constexpr int mempolicy_preferred = 1;

/// `reserve`: huge pages are set aside now, or the first touch of one that the machine does not have is a SIGBUS.
result<std::byte*> map_pages(int fd, std::uint64_t bytes, access mode, bool reserve = false) {
  const int protection = mode == access::read_write ? PROT_READ | PROT_WRITE : PROT_READ;
  void* address = ::mmap(nullptr, bytes, protection, MAP_SHARED | (reserve ? 0 : MAP_NORESERVE), fd, 0);
  if (address == MAP_FAILED) return fail_errno("mmap", std::to_string(bytes) + " bytes of shared memory");
  ::madvise(address, bytes, MADV_DONTDUMP);
  return static_cast<std::byte*>(address);
}

}  // namespace

segment::segment(segment&& other) noexcept
    : file_(std::move(other.file_)), data_(std::exchange(other.data_, nullptr)) {}

segment& segment::operator=(segment&& other) noexcept {
  if (this != &other) {
    unmap();
    file_ = std::move(other.file_);
    data_ = std::exchange(other.data_, nullptr);
  }
  return *this;
}

segment::~segment() {
  unmap();
}

void segment::unmap() noexcept {
  if (data_ != nullptr) ::munmap(data_, size());
}

result<segment> segment::create(const std::string& name, std::uint64_t bytes, bool huge, sealing when) {
  auto file = shared_file::create(name, bytes, huge, when);
  if (!file) return std::unexpected(file.error());
  auto data = map_pages(file->fd().get(), bytes, access::read_write, huge);
  if (!data) return std::unexpected(data.error().in(name));
  return segment(std::move(*file), *data);
}

result<segment> segment::map(unique_fd fd, std::uint64_t bytes, access mode) {
  auto file = shared_file::adopt(std::move(fd), bytes);
  if (!file) return std::unexpected(file.error());
  auto data = map_pages(file->fd().get(), bytes, mode);
  if (!data) return std::unexpected(data.error());
  return segment(std::move(*file), *data);
}

result<segment> segment::map_unsealed(unique_fd fd) {
  auto file = shared_file::adopt_unsealed(std::move(fd));
  if (!file) return std::unexpected(file.error());
  auto data = map_pages(file->fd().get(), file->size(), access::read_write);
  if (!data) return std::unexpected(data.error());
  return segment(std::move(*file), *data);
}

result<void> segment::settle(std::uint64_t bytes) {
  const std::uint64_t mapped = size();
  result<void> settled = file_.settle(bytes);
  if (settled && bytes != mapped) {
    void* moved = ::mremap(data_, mapped, bytes, MREMAP_MAYMOVE);
    if (moved != MAP_FAILED) {
      data_ = static_cast<std::byte*>(moved);
    } else {
      settled = fail_errno("mremap", std::to_string(bytes) + " bytes of shared memory");
    }
  }
  if (!settled) ::munmap(std::exchange(data_, nullptr), mapped);
  return settled;
}

void segment::keep_from_children() const noexcept {
  ::madvise(data_, size(), MADV_DONTFORK);
}

std::uint64_t kernel_page_bytes() noexcept {
  return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

result<void> check_kernel_pages(std::uint64_t bytes) {
  if (bytes != 0 && page_bytes % bytes == 0) return {};
  return fail(error_code::unsupported, "this kernel's pages have " + std::to_string(bytes) +
                                           " bytes, and shared memory is laid out for pages of " +
                                           std::to_string(page_bytes) + "; boot a kernel with pages of 4 KiB");
}

bool populate_pages(std::span<std::byte> pages, access mode) noexcept {
  const int advice = mode == access::read_write ? madv_populate_write : madv_populate_read;
  const std::uint64_t shift = reinterpret_cast<std::uintptr_t>(pages.data()) % page_bytes;
  return ::madvise(pages.data() - shift, pages.size() + shift, advice) == 0;
}

bool segment::populate(std::uint64_t offset, std::uint64_t bytes, access mode) const noexcept {
  return populate_pages({data_ + offset, bytes}, mode);
}

bool segment::bind_to_node(int node) const noexcept {
  constexpr unsigned bits_per_word = 64;
  unsigned long mask[16] = {};
  if (node < 0 || static_cast<unsigned>(node) >= bits_per_word * 16) return false;
  mask[static_cast<unsigned>(node) / bits_per_word] |= 1UL << (static_cast<unsigned>(node) % bits_per_word);
  return ::syscall(SYS_mbind, data_, size(), mempolicy_preferred, mask, bits_per_word * 16, 0) == 0;
}

void segment::advise_huge() const noexcept {
  ::madvise(data_, size(), MADV_HUGEPAGE);
}

void write_header(segment_header& header, segment_kind kind, std::uint64_t size) noexcept {
  const struct {
    std::uint64_t magic;
    std::uint32_t version, kind;
    std::uint64_t size;
  } fields{segment_magic, layout_version, static_cast<std::uint32_t>(kind), size};
  static_assert(sizeof fields == offsetof(segment_header, retired));
  shared_bytes(&header, &fields, sizeof fields, "header.fields"_point);
  shared_store(header.retired, 0, std::memory_order_release, "header.retired"_point);
}

result<void> check_header(const segment_header& header, segment_kind kind, std::uint64_t size) {
  if (header.magic != segment_magic) return fail(error_code::layout_mismatch, "a segment has the wrong magic number");
  if (header.version != layout_version) {
    return fail(error_code::layout_mismatch, "a segment has layout version " + std::to_string(header.version) +
                                                 ", this build reads version " + std::to_string(layout_version));
  }
  if (header.kind != static_cast<std::uint32_t>(kind)) {
    return fail(error_code::layout_mismatch, "a segment is of kind " + std::to_string(header.kind) + ", expected " +
                                                 std::to_string(static_cast<std::uint32_t>(kind)));
  }
  if (header.size != size) {
    return fail(error_code::layout_mismatch,
                "a segment says it has " + std::to_string(header.size) + " bytes, expected " + std::to_string(size));
  }
  return {};
}

}  // namespace cenote::memory
