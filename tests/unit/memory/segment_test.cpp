#include "memory/segment.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <boost/test/unit_test.hpp>
#include <cstring>
#include <functional>

#include "memory/block_record.hpp"
#include "memory/index.hpp"
#include "memory/version_table.hpp"
#include "tests/support/native_kernel.hpp"

namespace cenote::memory {

namespace {

/// Runs `work` in a child; how it ended: its exit status, or minus the signal.
int in_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int number : {SIGSEGV, SIGBUS, SIGABRT}) ::signal(number, SIG_DFL);
    ::_exit(work());
  }
  int status = 0;
  BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

segment made(std::uint64_t bytes = 16 * page_bytes) {
  auto segment = segment::create("test", bytes);
  BOOST_REQUIRE(segment.has_value());
  return std::move(*segment);
}

std::string path_of(int fd) {
  return "/proc/self/fd/" + std::to_string(fd);
}

/// Refused as another layout, and `word` is in the message.
bool refused(const result<void>& checked, const std::string& word) {
  return !checked && checked.error().code() == error_code::layout_mismatch &&
         checked.error().message().find(word) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(segments)

BOOST_AUTO_TEST_CASE(only_the_owner_may_open_a_segment) {
  const segment one = made();
  struct stat status {};
  BOOST_REQUIRE(::fstat(one.fd().get(), &status) == 0);
  BOOST_TEST((status.st_mode & 07777) == 0600U);
}

BOOST_AUTO_TEST_CASE(a_segment_is_sealed_against_shrinking_growing_and_seals_but_not_against_writing) {
  const segment one = made();
  BOOST_TEST(::fcntl(one.fd().get(), F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
  BOOST_TEST(::ftruncate(one.fd().get(), 0) == -1);
  BOOST_TEST(::ftruncate(one.fd().get(), 1 << 20) == -1);
  BOOST_TEST(::fcntl(one.fd().get(), F_ADD_SEALS, F_SEAL_WRITE) == -1);
  constexpr int future_write = 0x0010;  // F_SEAL_FUTURE_WRITE: a later worker could not map it
  BOOST_TEST(::fcntl(one.fd().get(), F_ADD_SEALS, future_write) == -1);
}

BOOST_AUTO_TEST_CASE(a_second_worker_can_map_it_and_write) {
  const segment one = made();
  const auto two = segment::map(std::move(*one.fd().duplicate()), one.size(), access::read_write);
  BOOST_REQUIRE(two.has_value());
  two->data()[5] = std::byte{7};
  BOOST_TEST((one.data()[5] == std::byte{7}));
}

BOOST_AUTO_TEST_CASE(a_read_only_descriptor_can_neither_be_written_nor_mapped_writable) {
  const segment one = made();
  auto descriptor = one.read_only_descriptor();
  BOOST_REQUIRE(descriptor.has_value());
  const int fd = descriptor->get();
  BOOST_TEST(::write(fd, "x", 1) == -1);
  BOOST_TEST(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == -1);
  BOOST_TEST((::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED));
  void* mapped = ::mmap(nullptr, page_bytes, PROT_READ, MAP_SHARED, fd, 0);
  BOOST_REQUIRE(mapped != MAP_FAILED);
  BOOST_TEST(::mprotect(mapped, page_bytes, PROT_READ | PROT_WRITE) == -1);
  ::munmap(mapped, page_bytes);
  const auto view = segment::map(std::move(*descriptor), one.size(), access::read_only);
  BOOST_REQUIRE(view.has_value());
  one.data()[9] = std::byte{3};
  BOOST_TEST((view->data()[9] == std::byte{3}));
}

BOOST_AUTO_TEST_CASE(another_user_cannot_open_the_descriptor_again) {
  if (::geteuid() != 0) {
    BOOST_TEST_MESSAGE("skipped: only root can become another user");
    return;
  }
  const segment one = made();
  const auto descriptor = one.read_only_descriptor();
  BOOST_REQUIRE(descriptor.has_value());
  const int fd = descriptor->get();
  const int ended = in_child([fd] {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 2;
    if (::open(path_of(fd).c_str(), O_RDWR) >= 0) return 1;
    return ::fchmod(fd, 0666) == 0 ? 3 : 0;
  });
  BOOST_TEST(ended == 0);
}

BOOST_AUTO_TEST_CASE(a_segment_of_another_size_or_without_the_seal_is_refused) {
  const segment one = made();
  const auto small = segment::map(std::move(*one.fd().duplicate()), one.size() / 2, access::read_write);
  BOOST_REQUIRE(!small.has_value());
  BOOST_TEST(small.error().message().find("65536") != std::string::npos);
  unique_fd bare(::memfd_create("bare", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  BOOST_REQUIRE(::ftruncate(bare.get(), 4096) == 0);
  const auto unsealed = segment::map(std::move(bare), 4096, access::read_write);
  BOOST_REQUIRE(!unsealed.has_value());
  BOOST_TEST(unsealed.error().message().find("sealed") != std::string::npos);
  BOOST_TEST(!segment::map(unique_fd(), 4096, access::read_write).has_value());
}

BOOST_AUTO_TEST_CASE(a_wrong_header_is_refused_with_what_is_wrong) {
  segment_header header{};
  write_header(header, segment_kind::index, 4096);
  BOOST_TEST(check_header(header, segment_kind::index, 4096).has_value());
  BOOST_TEST(refused(check_header(header, segment_kind::slab, 4096), "kind"));
  BOOST_TEST(refused(check_header(header, segment_kind::index, 8192), "8192"));
  header.version = layout_version + 1;
  BOOST_TEST(refused(check_header(header, segment_kind::index, 4096), "version"));
  header.magic ^= 1;
  BOOST_TEST(refused(check_header(header, segment_kind::index, 4096), "magic"));
}

BOOST_AUTO_TEST_CASE(records_and_indexes_of_another_layout_are_not_opened) {
  auto records = record_table::create();
  BOOST_REQUIRE(records.has_value());
  BOOST_TEST(record_table::open(std::move(*records->memory().fd().duplicate())).has_value());
  reinterpret_cast<segment_header*>(records->memory().data())->version = 99;
  const auto refused_table = record_table::open(std::move(*records->memory().fd().duplicate()));
  BOOST_REQUIRE(!refused_table.has_value());
  BOOST_TEST((refused_table.error().code() == error_code::layout_mismatch));
  auto nothing = shared_file::create("nothing", index_segment_bytes);
  BOOST_REQUIRE(nothing.has_value());
  BOOST_TEST(!index_writer::open(std::move(*nothing)).has_value());
}

BOOST_AUTO_TEST_CASE(punched_memory_reads_as_zero_and_is_given_back) {
  const segment one = made();
  std::memset(one.data(), 0xab, one.size());
  struct stat before {};
  struct stat after {};
  ::fstat(one.fd().get(), &before);
  one.punch(4 * page_bytes, 8 * page_bytes);
  ::fstat(one.fd().get(), &after);
  BOOST_TEST(before.st_blocks - after.st_blocks == static_cast<long>(8 * page_bytes / 512));
  for (std::uint64_t i = 0; i < one.size(); i += 64) {
    const bool hole = i >= 4 * page_bytes && i < 12 * page_bytes;
    BOOST_REQUIRE((one.data()[i] == std::byte{hole ? std::uint8_t{0} : std::uint8_t{0xab}}));
  }
}

BOOST_AUTO_TEST_CASE(populating_takes_the_memory_and_changes_nothing, *testing::needs_native_kernel()) {
  const segment one = made();
  one.data()[0] = std::byte{5};
  BOOST_REQUIRE(one.populate(0, one.size(), access::read_write));
  struct stat status {};
  ::fstat(one.fd().get(), &status);
  BOOST_TEST(status.st_blocks == static_cast<long>(one.size() / 512));
  BOOST_TEST((one.data()[0] == std::byte{5}));
  BOOST_TEST((one.data()[page_bytes] == std::byte{0}));
}

BOOST_AUTO_TEST_CASE(a_forked_child_does_not_have_the_mapping, *testing::needs_native_kernel()) {
#ifndef CENOTE_TSAN
  const segment one = made();
  one.data()[0] = std::byte{1};
  BOOST_TEST(in_child([&] { return one.data()[0] == std::byte{1} ? 0 : 1; }) == 0);
  one.keep_from_children();
  BOOST_TEST(in_child([&] {
               unsigned char resident = 0;
               return ::mincore(one.data(), page_bytes, &resident) == -1 && errno == ENOMEM ? 0 : 1;
             }) == 0);
#ifndef __SANITIZE_ADDRESS__
  BOOST_TEST(in_child([&] { return static_cast<int>(*const_cast<volatile std::byte*>(one.data())); }) == -SIGSEGV);
#endif
  BOOST_TEST((one.data()[0] == std::byte{1}));
#endif
}

BOOST_AUTO_TEST_CASE(huge_pages_are_there_or_refused_never_a_fault_later) {
  const std::uint64_t bytes = std::uint64_t{64} << 30;  // more than the machine has
  const auto refused_segment = segment::create("huge", bytes, true);
  BOOST_REQUIRE(!refused_segment.has_value());
  BOOST_TEST((refused_segment.error().code() == error_code::system));
  auto small = segment::create("huge", std::uint64_t{2} << 20, true);
  if (small) small->data()[0] = std::byte{1};  // a SIGBUS here is the bug
}

BOOST_AUTO_TEST_CASE(a_moved_segment_leaves_nothing_behind) {
  segment one = made();
  one.data()[0] = std::byte{4};
  segment two = std::move(one);
  BOOST_TEST(!one);  // NOLINT(bugprone-use-after-move)
  BOOST_TEST((two.data()[0] == std::byte{4}));
  two = made();
  BOOST_TEST((two.data()[0] == std::byte{0}));
}

BOOST_AUTO_TEST_CASE(a_kernel_whose_pages_are_larger_than_the_layouts_is_refused_with_both_sizes) {
  BOOST_TEST(check_kernel_pages().has_value());
  BOOST_TEST(check_kernel_pages(page_bytes).has_value());
  for (const std::uint64_t bytes : {16384U, 65536U}) {
    const auto refused = check_kernel_pages(bytes);
    BOOST_REQUIRE(!refused.has_value());
    BOOST_TEST((refused.error().code() == error_code::unsupported));
    BOOST_TEST(refused.error().message().find(std::to_string(bytes)) != std::string::npos);
    BOOST_TEST(refused.error().message().find("4096") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(it_can_be_bound_to_a_numa_node_or_says_that_it_cannot) {
  const segment one = made();
  BOOST_TEST(!one.bind_to_node(-1));
  BOOST_TEST(!one.bind_to_node(5000));
  one.advise_huge();
  one.data()[0] = std::byte{1};
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::memory
