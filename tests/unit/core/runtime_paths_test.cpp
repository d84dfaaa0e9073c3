#include "core/runtime_paths.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/unique_fd.hpp"

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

class temporary_folder {
 public:
  temporary_folder() {
    std::string name = "/tmp/cenote-test.XXXXXX";
    BOOST_REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

/// A socket at a path.
class listener {
 public:
  explicit listener(const std::string& path) : descriptor_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    BOOST_REQUIRE(::bind(descriptor_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }

 private:
  cenote::unique_fd descriptor_;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(runtime_paths)

BOOST_AUTO_TEST_CASE(state_lies_where_the_service_manager_says_or_in_the_user_s_own_place) {
  const scoped_variable given("STATE_DIRECTORY", "/some/state");
  BOOST_TEST(*cenote::default_state_dir() == "/some/state");
  const scoped_variable none("STATE_DIRECTORY", nullptr);
  const scoped_variable xdg("XDG_STATE_HOME", "/some/home/state");
  const bool is_root = ::geteuid() == 0;
  BOOST_TEST(*cenote::default_state_dir() == (is_root ? "/var/lib/cenote" : "/some/home/state/cenote"));
  const scoped_variable no_xdg("XDG_STATE_HOME", nullptr);
  const scoped_variable home("HOME", "/some/home");
  BOOST_TEST(*cenote::default_state_dir() == (is_root ? "/var/lib/cenote" : "/some/home/.local/state/cenote"));
}

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

BOOST_AUTO_TEST_CASE(the_environment_names_the_node) {
  const scoped_variable named("CENOTE_SOCKET", "/somewhere/else.sock");
  BOOST_TEST(cenote::default_socket_path() == "/somewhere/else.sock");
}

BOOST_AUTO_TEST_CASE(without_a_socket_the_users_own_place_is_named) {
  const temporary_folder folder;
  const scoped_variable named("CENOTE_SOCKET", nullptr);
  const scoped_variable xdg("XDG_RUNTIME_DIR", folder.path().c_str());
  BOOST_TEST(cenote::default_socket_path().ends_with("/cenote.sock"));
}

BOOST_AUTO_TEST_CASE(a_socket_is_trusted_where_no_other_user_could_have_made_it) {
  const temporary_folder folder;
  const auto place = folder.path() / "cenote";
  const std::string socket = place / "cenote.sock";
  BOOST_TEST(!cenote::is_trusted_socket(socket));
  std::filesystem::create_directory(place);
  BOOST_TEST(!cenote::is_trusted_socket(socket));
  const listener made(socket);
  ::chmod(place.c_str(), 0755);
  BOOST_TEST(cenote::is_trusted_socket(socket));

  // The folder may be written by others: they can put another socket there.
  ::chmod(folder.path().c_str(), 01777);
  ::chmod(place.c_str(), 0777);
  BOOST_TEST(!cenote::is_trusted_socket(socket));
  ::chmod(place.c_str(), 0755);
  std::filesystem::create_directory_symlink(place, folder.path() / "link");
  BOOST_TEST(cenote::is_trusted_socket(folder.path() / "link" / "cenote.sock"));
  if (::geteuid() != 0) return;  // the rest needs a second user

  constexpr uid_t other = 54322;
  BOOST_TEST(::lchown((folder.path() / "link").c_str(), other, other) == 0);
  BOOST_TEST(!cenote::is_trusted_socket(folder.path() / "link" / "cenote.sock"));
  BOOST_TEST(::chown(socket.c_str(), other, other) == 0);
  BOOST_TEST(!cenote::is_trusted_socket(socket));
  BOOST_TEST(::chown(place.c_str(), other, other) == 0);
  BOOST_TEST(!cenote::is_trusted_socket(socket), "any user can make a folder in a place like /tmp");
  ::chmod(folder.path().c_str(), 0755);
  BOOST_TEST(cenote::is_trusted_socket(socket), "root has given the folder away");
}

BOOST_AUTO_TEST_CASE(a_node_of_another_user_in_the_temporary_folder_is_not_found) {
  if (::geteuid() != 0) return;  // it takes a second user
  const temporary_folder folder;
  const auto place = folder.path() / "cenote";
  std::filesystem::create_directory(place);
  const listener made(place / "cenote.sock");
  ::chmod(folder.path().c_str(), 01777);
  BOOST_TEST(::chown(place.c_str(), 54322, 54322) == 0);
  const scoped_variable named("CENOTE_SOCKET", nullptr);
  const scoped_variable xdg("XDG_RUNTIME_DIR", folder.path().c_str());
  BOOST_TEST(cenote::default_socket_path() != place / "cenote.sock");
}

BOOST_AUTO_TEST_SUITE_END()
