#include "memory/shared_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

namespace cenote::memory {

namespace {

constexpr unsigned huge_2mb = 21U << 26U;  // newer than bookworm's headers

}  // namespace

result<shared_file> shared_file::create(const std::string& name, std::uint64_t bytes, bool huge, sealing when) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB | huge_2mb : 0U);
  unique_fd fd(::memfd_create(name.c_str(), flags));
  if (!fd) return fail_errno("memfd_create", name);
  if (::fchmod(fd.get(), 0600) != 0) return fail_errno("fchmod", name);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return fail_errno("ftruncate", name);
  shared_file made(std::move(fd), bytes);
  if (when == sealing::later) return made;
  if (auto settled = made.settle(bytes); !settled) return std::unexpected(settled.error().in(name));
  return made;
}

result<void> shared_file::settle(std::uint64_t bytes) {
  if (bytes != size_ && ::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) return fail_errno("ftruncate");
  size_ = bytes;
  if (::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return fail_errno("fcntl(F_ADD_SEALS)");
  }
  return {};
}

result<shared_file> shared_file::adopt(unique_fd fd, std::uint64_t bytes) {
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
  return shared_file(std::move(fd), bytes);
}

result<shared_file> shared_file::adopt_unsealed(unique_fd fd) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return fail_errno("fstat");
  return shared_file(std::move(fd), static_cast<std::uint64_t>(status.st_size));
}

result<unique_fd> shared_file::read_only_descriptor() const {
  const std::string path = "/proc/self/fd/" + std::to_string(fd_.get());
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail_errno("open", path);
  return unique_fd(fd);
}

void shared_file::punch(std::uint64_t offset, std::uint64_t bytes, store_point point) const noexcept {
  ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
  passed(point);
}

}  // namespace cenote::memory
