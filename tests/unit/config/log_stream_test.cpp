#include "config/log_stream.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/test/unit_test.hpp>
#include <string>
#include <utility>

#include "core/unique_fd.hpp"

namespace {

using cenote::unique_fd;
using cenote::config::log_stream;

/// Ends to read and to write.
std::pair<unique_fd, unique_fd> ends_of(const std::string& kind) {
  std::array<int, 2> ends{-1, -1};
  if (kind == "socket") {
    BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  } else {
    BOOST_REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    BOOST_REQUIRE(::fcntl(ends[1], F_SETPIPE_SZ, 4096) >= 0);
  }
  return {unique_fd(ends[0]), unique_fd(ends[1])};
}

/// All that is there now.
std::string content_of(int end) {
  BOOST_REQUIRE(::fcntl(end, F_SETFL, O_NONBLOCK) == 0);
  std::string all;
  std::array<char, 4096> some{};
  for (ssize_t got = 0; (got = ::read(end, some.data(), some.size())) > 0;)
    all.append(some.data(), static_cast<std::size_t>(got));
  return all;
}

std::string line_of(int number, std::size_t bytes) {
  std::string line = std::to_string(number) + " ";
  line.resize(bytes - 1, static_cast<char>('a' + number % 26));
  return line + "\n";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(log_stream_suite)

BOOST_AUTO_TEST_CASE(lines_that_nobody_reads_are_dropped_whole_and_counted) {
  for (const std::string kind : {"pipe", "socket"}) {
    for (const std::size_t bytes : {100U, 3'000U, 50'000U}) {
      const auto [reads, writes] = ends_of(kind);
      log_stream stream(writes.get());
      int written = 0;
      for (; stream.dropped() < 50; ++written) stream.write(line_of(written, bytes));
      BOOST_TEST(!stream.is_open());
      std::string read = content_of(reads.get());
      for (int tries = 0; tries < 100 && !stream.is_open(); ++tries) read += content_of(reads.get());
      BOOST_TEST(stream.is_open());
      stream.write("end\n");
      for (std::string more; !(more = content_of(reads.get())).empty();) read += more;
      std::string expected;
      for (int number = 0; number < written - 50; ++number) expected += line_of(number, bytes);
      BOOST_TEST((read == expected + "end\n"), kind << ", " << bytes << " bytes: " << read.size());
      BOOST_TEST(stream.dropped() == 50U);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_flags_of_a_descriptor_that_others_share_stay_as_they_are) {
  const auto [reads, writes] = ends_of("pipe");
  const int before = ::fcntl(writes.get(), F_GETFL);
  log_stream stream(writes.get());
  stream.write("line\n");
  BOOST_TEST(::fcntl(writes.get(), F_GETFL) == before);
  BOOST_TEST(content_of(reads.get()) == "line\n");
}

BOOST_AUTO_TEST_CASE(a_file_takes_every_line) {
  const unique_fd file(::memfd_create("log", MFD_CLOEXEC));
  log_stream stream(file.get());
  std::string all;
  for (int number = 0; number < 1000; ++number) {
    stream.write(line_of(number, 1000));
    all += line_of(number, 1000);
  }
  BOOST_TEST(stream.dropped() == 0U);
  BOOST_TEST(::lseek(file.get(), 0, SEEK_SET) == 0);
  std::string read(all.size(), ' ');
  BOOST_TEST(::read(file.get(), read.data(), read.size()) == static_cast<ssize_t>(all.size()));
  BOOST_TEST((read == all));
}

BOOST_AUTO_TEST_SUITE_END()
