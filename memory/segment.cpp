#include "memory/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace cenote::memory {

namespace {

// Newer than bookworm's headers in part; the kernel answers EINVAL where it does not know them.
constexpr int madv_populate_read = 22;
constexpr int madv_populate_write = 23;
constexpr int mempolicy_preferred = 1;
constexpr unsigned huge_2mb = 21U << 26U;

/// `reserve`: huge pages are set aside now, or the first touch of one that the machine does not have is a SIGBUS.
result<std::byte*> map_pages(int fd, std::uint64_t bytes, access how, bool reserve = false) {
  const int protection = how == access::read_write ? PROT_READ | PROT_WRITE : PROT_READ;
  void* address = ::mmap(nullptr, bytes, protection, MAP_SHARED | (reserve ? 0 : MAP_NORESERVE), fd, 0);
  if (address == MAP_FAILED) return fail_errno("mmap", std::to_string(bytes) + " bytes of shared memory");
  ::madvise(address, bytes, MADV_DONTDUMP);
  return static_cast<std::byte*>(address);
}

}  // namespace

segment::segment(segment&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_from_(std::exchange(other.mapped_from_, 0)),
      mapped_end_(std::exchange(other.mapped_end_, 0)) {}

segment& segment::operator=(segment&& other) noexcept {
  if (this != &other) {
    unmap();
    fd_ = std::move(other.fd_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    mapped_from_ = std::exchange(other.mapped_from_, 0);
    mapped_end_ = std::exchange(other.mapped_end_, 0);
  }
  return *this;
}

segment::~segment() {
  unmap();
}

void segment::unmap() noexcept {
  if (data_ != nullptr) ::munmap(data_ + mapped_from_, mapped_end_ - mapped_from_);
}

void segment::narrow(std::uint64_t offset, std::uint64_t bytes) noexcept {
  const std::uint64_t end = offset + bytes;
  if (offset > mapped_from_) ::munmap(data_ + mapped_from_, offset - mapped_from_);
  if (end < mapped_end_) ::munmap(data_ + end, mapped_end_ - end);
  mapped_from_ = std::max(mapped_from_, offset);
  mapped_end_ = std::min(mapped_end_, end);
}

result<segment> segment::create(const std::string& name, std::uint64_t bytes, bool huge) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB | huge_2mb : 0U);
  unique_fd fd(::memfd_create(name.c_str(), flags));
  if (!fd) return fail_errno("memfd_create", name);
  if (::fchmod(fd.get(), 0600) != 0) return fail_errno("fchmod", name);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return fail_errno("ftruncate", name);
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return fail_errno("fcntl(F_ADD_SEALS)", name);
  }
  auto data = map_pages(fd.get(), bytes, access::read_write, huge);
  if (!data) return std::unexpected(data.error().in(name));
  return segment(std::move(fd), *data, bytes);
}

result<segment> segment::map(unique_fd fd, std::uint64_t bytes, access how) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return fail_errno("fstat");
  if (static_cast<std::uint64_t>(status.st_size) != bytes) {
    return fail(error_code::layout_mismatch,
                "a segment has " + std::to_string(status.st_size) + " bytes, expected " + std::to_string(bytes));
  }
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return fail(error_code::layout_mismatch,
                "a segment is not sealed against shrinking; it could vanish under a reader");
  }
  auto data = map_pages(fd.get(), bytes, how);
  if (!data) return std::unexpected(data.error());
  return segment(std::move(fd), *data, bytes);
}

result<unique_fd> segment::read_only_descriptor() const {
  const std::string path = "/proc/self/fd/" + std::to_string(fd_.get());
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail_errno("open", path);
  return unique_fd(fd);
}

void segment::keep_from_children() const noexcept {
  ::madvise(data_, size_, MADV_DONTFORK);
}

bool segment::populate(std::uint64_t offset, std::uint64_t bytes, access how) const noexcept {
  const int advice = how == access::read_write ? madv_populate_write : madv_populate_read;
  return ::madvise(data_ + offset, bytes, advice) == 0;
}

void segment::punch(std::uint64_t offset, std::uint64_t bytes, store_point at) const noexcept {
  ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
  passed(at);
}

bool segment::bind_to_node(int node) const noexcept {
  constexpr unsigned bits_per_word = 64;
  unsigned long mask[16] = {};
  if (node < 0 || static_cast<unsigned>(node) >= bits_per_word * 16) return false;
  mask[static_cast<unsigned>(node) / bits_per_word] |= 1UL << (static_cast<unsigned>(node) % bits_per_word);
  return ::syscall(SYS_mbind, data_, size_, mempolicy_preferred, mask, bits_per_word * 16, 0) == 0;
}

void segment::advise_huge() const noexcept {
  ::madvise(data_, size_, MADV_HUGEPAGE);
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
