#include "core/runtime_paths.hpp"

#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>

namespace {

/// Sets or unsets a variable and puts it back.
class scoped_variable {
 public:
  scoped_variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
  }
  scoped_variable(const scoped_variable&) = delete;
  scoped_variable& operator=(const scoped_variable&) = delete;
  ~scoped_variable() { before_.empty() ? ::unsetenv(name_) : ::setenv(name_, before_.c_str(), 1); }

 private:
  const char* name_;
  std::string before_;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(runtime_paths)

BOOST_AUTO_TEST_CASE(the_users_runtime_directory_is_used_if_there_is_one) {
  const scoped_variable xdg("XDG_RUNTIME_DIR", "/run/user/7");
  BOOST_TEST(cenote::default_runtime_dir() == "/run/user/7/cenote");
}

BOOST_AUTO_TEST_CASE(without_one_it_depends_on_the_user) {
  const scoped_variable xdg("XDG_RUNTIME_DIR", nullptr);
  const auto expected = ::geteuid() == 0 ? "/run/cenote" : "/tmp/cenote-" + std::to_string(::geteuid());
  BOOST_TEST(cenote::default_runtime_dir() == expected);
}

BOOST_AUTO_TEST_CASE(the_socket_lies_in_the_runtime_directory) {
  BOOST_TEST(cenote::socket_in("/run/cenote") == "/run/cenote/cenote.sock");
}

BOOST_AUTO_TEST_SUITE_END()
