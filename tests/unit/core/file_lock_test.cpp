#include "core/file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <chrono>

#include "core/unique_fd.hpp"

namespace cenote {

namespace {

using namespace std::chrono_literals;

/// Two open file descriptions of one file: a lock of the one keeps the other out.
struct lockable_file {
  unique_fd first{::memfd_create("lockable", MFD_CLOEXEC)};
  std::string path = "/proc/self/fd/" + std::to_string(first.get());
  unique_fd second{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
};

}  // namespace

BOOST_AUTO_TEST_SUITE(file_lock_tests)

BOOST_AUTO_TEST_CASE(a_free_file_is_locked_at_once) {
  const lockable_file file;
  const auto asked = [] { return result<void>(fail(error_code::internal, "it is free")); };
  BOOST_TEST(lock_file(file.first.get(), LOCK_EX, file.path, 0ms, asked).value());
}

BOOST_AUTO_TEST_CASE(what_is_held_for_longer_than_the_patience_is_not_taken) {
  const lockable_file file;
  BOOST_REQUIRE(lock_file(file.first.get(), LOCK_EX, file.path, 0ms).value());
  int asked = 0;
  const auto count = [&] {
    ++asked;
    return result<void>();
  };
  BOOST_TEST(!lock_file(file.second.get(), LOCK_EX, file.path, 20ms, count).value());
  BOOST_TEST(asked >= 2);
}

BOOST_AUTO_TEST_CASE(a_lock_is_taken_when_its_holder_lets_go) {
  lockable_file file;
  BOOST_REQUIRE(lock_file(file.first.get(), LOCK_EX, file.path, 0ms).value());
  const auto let_go = [&] {
    file.first.reset();
    return result<void>();
  };
  BOOST_TEST(lock_file(file.second.get(), LOCK_EX, file.path, 10s, let_go).value());
}

BOOST_AUTO_TEST_CASE(readers_share_a_lock) {
  const lockable_file file;
  BOOST_TEST(lock_file(file.first.get(), LOCK_SH, file.path, 0ms).value());
  BOOST_TEST(lock_file(file.second.get(), LOCK_SH, file.path, 0ms).value());
}

BOOST_AUTO_TEST_CASE(the_wait_ends_with_the_reason_that_the_caller_finds) {
  const lockable_file file;
  BOOST_REQUIRE(lock_file(file.first.get(), LOCK_EX, file.path, 0ms).value());
  const auto refuse = [] { return result<void>(fail(error_code::invalid_config, "it is another node's")); };
  const auto locked = lock_file(file.second.get(), LOCK_EX, file.path, 10s, refuse);
  BOOST_REQUIRE(!locked);
  BOOST_TEST((locked.error().code() == error_code::invalid_config));
}

BOOST_AUTO_TEST_CASE(what_is_no_file_is_said_by_its_name) {
  const auto locked = lock_file(-1, LOCK_EX, "/there/it.lock", 10s);
  BOOST_REQUIRE(!locked);
  BOOST_TEST(locked.error().describe().contains("/there/it.lock"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote
