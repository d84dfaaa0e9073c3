#include "tiers/nvme/path_file.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <boost/test/unit_test.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>

#include "core/units.hpp"
#include "tests/unit/tiers/nvme/temporary_directory.hpp"

namespace cenote::nvme {

namespace {

using namespace std::chrono_literals;

struct path_fixture {
  [[nodiscard]] path_options options(std::uint64_t bytes = 4 * MiB) const {
    return {.directory = path, .bytes = bytes, .holder = "/run/ours.sock", .patience = 10s};
  }
  [[nodiscard]] std::string data() const { return path + "/data"; }

  /// Overwrites part of the closed data file.
  void scribble(std::streamoff offset, const std::string& bytes) const {
    std::fstream file(data(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(offset);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    BOOST_REQUIRE(file.good());
  }

  [[nodiscard]] std::string first_sector() const {
    std::ifstream file(data(), std::ios::binary);
    std::string out(4096, '\0');
    file.read(out.data(), 4096);
    return out;
  }

  temporary_directory root;
  std::string path = root / "path";
};

mode_t mode_of(const std::string& path) {
  struct stat about {};
  BOOST_REQUIRE(::stat(path.c_str(), &about) == 0);
  return about.st_mode & 07777;
}

bool says(const error& failed, const std::string& text) {
  BOOST_TEST_MESSAGE(failed.describe());
  return failed.message().find(text) != std::string::npos;
}

/// A process that holds a path until it is killed.
class other_process {
 public:
  explicit other_process(const path_options& options) {
    int ends[2];
    BOOST_REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    pid_ = ::fork();
    BOOST_REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      const auto file = path_file::open(options);
      const char opened = file ? 'y' : 'n';
      if (::write(ends[1], &opened, 1) != 1) ::_exit(1);
      while (true) ::pause();
    }
    char opened = 'n';
    BOOST_REQUIRE(::read(ends[0], &opened, 1) == 1);
    BOOST_TEST(opened == 'y');
    ::close(ends[0]);
    ::close(ends[1]);
  }
  other_process(const other_process&) = delete;
  other_process& operator=(const other_process&) = delete;
  ~other_process() {
    kill();
    ::waitpid(pid_, nullptr, 0);
  }

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// Returns at once; what it held is given up some time later.
  void kill() const noexcept { ::kill(pid_, SIGKILL); }

 private:
  pid_t pid_ = -1;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(path_files, path_fixture)

BOOST_AUTO_TEST_CASE(a_new_path_is_made_for_its_owner_alone) {
  const auto file = path_file::open(options(4 * MiB + 100));
  BOOST_REQUIRE_MESSAGE(file.has_value(), (file ? "" : file.error().describe()));
  BOOST_TEST(file->is_new());
  BOOST_TEST(file->store_id() != 0U);
  BOOST_TEST(file->bytes() == 4 * MiB);
  BOOST_TEST(file->directory() == path);
  BOOST_TEST(mode_of(path) == 0700U);
  BOOST_TEST(mode_of(data()) == 0600U);
  BOOST_TEST(std::filesystem::file_size(data()) == 4 * MiB);
  BOOST_TEST((::fcntl(file->descriptor(), F_GETFD) & FD_CLOEXEC) != 0);
  BOOST_TEST(((::fcntl(file->descriptor(), F_GETFL) & O_DIRECT) != 0) == file->direct());
  struct stat about {};
  BOOST_REQUIRE(::stat(data().c_str(), &about) == 0);
  BOOST_TEST(static_cast<std::uint64_t>(about.st_blocks) * 512 >= 4 * MiB);  // all there, not a hole
}

BOOST_AUTO_TEST_CASE(a_path_keeps_its_identity_and_takes_another_size) {
  std::uint64_t id = 0;
  for (const std::uint64_t size : {4 * MiB, 2 * MiB, 8 * MiB}) {
    const auto file = path_file::open(options(size));
    BOOST_REQUIRE(file.has_value());
    BOOST_TEST(file->is_new() == (id == 0));
    if (id == 0) id = file->store_id();
    BOOST_TEST(file->store_id() == id);
    BOOST_TEST(std::filesystem::file_size(data()) == size);
  }
}

BOOST_AUTO_TEST_CASE(two_paths_have_two_identities) {
  const auto one = path_file::open(options());
  path = root / "other";
  const auto two = path_file::open(options());
  BOOST_REQUIRE((one && two));
  BOOST_TEST(one->store_id() != two->store_id());
}

BOOST_AUTO_TEST_CASE(wide_permissions_are_narrowed) {
  BOOST_REQUIRE(path_file::open(options()).has_value());
  BOOST_REQUIRE(::chmod(data().c_str(), 0644) == 0);
  BOOST_REQUIRE(path_file::open(options()).has_value());
  BOOST_TEST(mode_of(data()) == 0600U);
}

BOOST_AUTO_TEST_CASE(a_path_too_small_for_a_block_is_refused) {
  const auto refused = path_file::open(options(MiB));
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().code() == error_code::invalid_argument));
}

BOOST_AUTO_TEST_CASE(another_node_is_refused_at_once_and_told_whose_it_is) {
  auto theirs = options();
  theirs.holder = "/run/a node.sock";
  const auto held = path_file::open(theirs);
  BOOST_REQUIRE(held.has_value());
  auto ours = options();
  ours.patience = 1h;
  const auto refused = path_file::open(ours);
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().code() == error_code::invalid_config));
  BOOST_TEST(says(refused.error(), "/run/a node.sock"));
  BOOST_TEST(says(refused.error(), "pid " + std::to_string(::getpid())));
}

BOOST_AUTO_TEST_CASE(an_earlier_process_of_the_node_is_waited_for) {
  const other_process earlier(options());
  auto hasty = options();
  hasty.patience = 20ms;
  const auto refused = path_file::open(hasty);
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().code() == error_code::deadline_exceeded));
  BOOST_TEST(says(refused.error(), std::to_string(earlier.pid())));
  earlier.kill();
  const auto file = path_file::open(options());
  BOOST_REQUIRE(file.has_value());
  BOOST_TEST(!file->is_new());
}

BOOST_AUTO_TEST_CASE(a_foreign_file_is_left_as_it_is) {
  BOOST_REQUIRE(std::filesystem::create_directory(path));
  std::ofstream(data()) << "somebody's letters";
  const auto refused = path_file::open(options());
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().code() == error_code::layout_mismatch));
  BOOST_TEST(std::filesystem::file_size(data()) == 18U);
}

BOOST_AUTO_TEST_CASE(another_version_is_left_as_it_is) {
  BOOST_REQUIRE(path_file::open(options()).has_value());
  scribble(8, std::string("\x07\x00\x00\x00", 4));
  const auto before = first_sector();
  const auto refused = path_file::open(options(8 * MiB));
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().code() == error_code::layout_mismatch));
  BOOST_TEST(says(refused.error(), "version 7"));
  BOOST_TEST((first_sector() == before));
  BOOST_TEST(std::filesystem::file_size(data()) == 4 * MiB);
}

BOOST_AUTO_TEST_CASE(a_damaged_superblock_is_noticed) {
  BOOST_REQUIRE(path_file::open(options()).has_value());
  scribble(17, "x");
  const auto refused = path_file::open(options());
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().code() == error_code::layout_mismatch));
  BOOST_TEST(says(refused.error(), "damaged"));
}

BOOST_AUTO_TEST_CASE(a_file_that_got_its_size_but_no_contents_is_new) {
  BOOST_REQUIRE(std::filesystem::create_directory(path));
  std::ofstream(data()).close();
  std::filesystem::resize_file(data(), 2 * MiB);
  const auto file = path_file::open(options());
  BOOST_REQUIRE(file.has_value());
  BOOST_TEST(file->is_new());
}

BOOST_AUTO_TEST_CASE(a_full_file_system_is_told_with_numbers) {
  constexpr std::uint64_t huge = std::uint64_t{1} << 50;
  const auto refused = path_file::open(options(huge));
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().code() == error_code::no_space));
  BOOST_TEST(says(refused.error(), "bytes needed"));
  BOOST_TEST(says(refused.error(), " available"));
  BOOST_TEST(std::filesystem::file_size(data()) < MiB);
  const auto file = path_file::open(options());  // nothing is left of the attempt
  BOOST_TEST(file.has_value());
}

BOOST_AUTO_TEST_CASE(a_file_that_has_its_size_is_taken_on_a_full_file_system) {
  constexpr std::uint64_t huge = std::uint64_t{1} << 42;
  BOOST_REQUIRE(path_file::open(options()).has_value());
  std::filesystem::resize_file(data(), huge);  // more than the disk has
  const auto file = path_file::open(options(huge));
  BOOST_REQUIRE_MESSAGE(file.has_value(), (file ? "" : file.error().describe()));
  BOOST_TEST(file->bytes() == huge);
  BOOST_TEST(!file->is_new());
}

BOOST_AUTO_TEST_CASE(a_path_whose_disk_is_not_mounted_is_refused_where_one_is_required) {
  struct stat here {};
  struct stat root_of_all {};
  BOOST_REQUIRE(::stat((root / "").c_str(), &here) == 0);
  BOOST_REQUIRE(::stat("/", &root_of_all) == 0);
  auto strict = options();
  strict.directory = path + "/not/there";
  strict.require_mount = true;
  const auto opened = path_file::open(strict);
  if (here.st_dev != root_of_all.st_dev) {
    BOOST_TEST_MESSAGE("temporary files have a file system of their own here");
    BOOST_TEST(opened.has_value());
    return;
  }
  BOOST_REQUIRE(!opened.has_value());
  BOOST_TEST((opened.error().code() == error_code::invalid_config));
  BOOST_TEST(says(opened.error(), strict.directory + " lies on the root file system"));
  BOOST_TEST(!std::filesystem::exists(path), "nothing was made there");
}

BOOST_AUTO_TEST_CASE(a_path_on_another_file_system_than_the_root_is_a_mount) {
  struct stat shared {};
  struct stat root_of_all {};
  BOOST_REQUIRE(::stat("/", &root_of_all) == 0);
  if (::stat("/dev/shm", &shared) != 0 || shared.st_dev == root_of_all.st_dev) return;
  auto strict = options();
  strict.directory = "/dev/shm/cenote-path-" + std::to_string(::getpid());
  strict.require_mount = true;
  BOOST_TEST(path_file::open(strict).has_value());
  std::filesystem::remove_all(strict.directory);
}

BOOST_AUTO_TEST_CASE(a_link_to_a_device_that_is_missing_makes_no_file) {
  BOOST_REQUIRE(std::filesystem::create_directory(path));
  std::filesystem::create_symlink(root / "no device", data());
  const auto refused = path_file::open(options());
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().code() == error_code::invalid_config));
  BOOST_TEST(says(refused.error(), "is a link to " + (root / "no device")));
  BOOST_TEST(!std::filesystem::exists(root / "no device"));
}

BOOST_AUTO_TEST_CASE(a_directory_that_everybody_may_write_to_is_refused) {
  BOOST_REQUIRE(path_file::open(options()).has_value());
  for (const mode_t mode : {0777, 01777, 0702}) {
    BOOST_REQUIRE(::chmod(path.c_str(), mode) == 0);
    const auto refused = path_file::open(options());
    BOOST_REQUIRE(!refused.has_value());
    BOOST_TEST((refused.error().code() == error_code::invalid_config));
    BOOST_TEST(says(refused.error(), path + " may be written to by everybody"));
  }
  BOOST_REQUIRE(::chmod(path.c_str(), 0775) == 0);
  BOOST_TEST(path_file::open(options()).has_value(), "whoever made it chose its group");
}

BOOST_AUTO_TEST_CASE(a_directory_of_another_user_is_refused) {
  if (::geteuid() != 0) {
    BOOST_TEST_MESSAGE("only root can give a directory away");
    return;
  }
  BOOST_REQUIRE(std::filesystem::create_directory(path));
  BOOST_REQUIRE(::chown(path.c_str(), 4242, 4242) == 0);
  const auto refused = path_file::open(options());
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().code() == error_code::invalid_config));
  BOOST_TEST(says(refused.error(), path + " belongs to uid 4242"));
  BOOST_TEST(!std::filesystem::exists(data()));
}

/// Of a check, with what it must leave as it is.
std::optional<error> refusal_of(const path_options& options) {
  const auto checked = path_file::check(options);
  return checked ? std::nullopt : std::optional(checked.error());
}

BOOST_AUTO_TEST_CASE(a_check_makes_nothing_and_takes_what_opens) {
  BOOST_TEST(!refusal_of(options()));
  BOOST_TEST(!std::filesystem::exists(path));
  BOOST_REQUIRE(path_file::open(options()).has_value());
  const std::string before = first_sector();
  for (const std::uint64_t size : {4 * MiB, 2 * MiB, 8 * MiB}) BOOST_TEST(!refusal_of(options(size)));
  BOOST_TEST(std::filesystem::file_size(data()) == 4 * MiB);
  BOOST_TEST(first_sector() == before);
  BOOST_TEST(path_file::check(options(4 * MiB))->bytes == 0U, "it is reserved");
  const auto more = path_file::check(options(12 * MiB));
  BOOST_REQUIRE(more.has_value());
  BOOST_TEST(more->bytes <= 8 * MiB);
  BOOST_TEST(more->bytes > 7 * MiB);
  BOOST_TEST(more->available > more->bytes);
}

BOOST_AUTO_TEST_CASE(a_check_refuses_what_does_not_open_with_the_same_words) {
  const auto agree = [&](const path_options& subject, const std::string& part) {
    const auto checked = refusal_of(subject);
    const auto opened = path_file::open(subject);
    BOOST_REQUIRE(checked.has_value());
    BOOST_REQUIRE(!opened.has_value());
    BOOST_TEST(says(*checked, part));
    BOOST_TEST(checked->message() == opened.error().message());
    BOOST_TEST((checked->code() == opened.error().code()));
  };
  agree(options(MiB), "a path needs more than");
  BOOST_REQUIRE(path_file::open(options()).has_value());
  BOOST_REQUIRE(::chmod(path.c_str(), 0777) == 0);
  agree(options(), "by everybody");
  BOOST_REQUIRE(::chmod(path.c_str(), 0700) == 0);
  scribble(8, std::string(1, '\x63'));
  agree(options(), "has format version 99");
  scribble(0, "somebody");
  agree(options(), "holds something else");
  std::filesystem::remove(data());
  std::filesystem::create_directory(data());
  agree(options(), "neither a file nor a block device");
  std::filesystem::remove(data());
  std::filesystem::create_symlink("/dev/null", data());
  agree(options(), "neither a file nor a block device");
  std::filesystem::remove(data());
  std::filesystem::create_symlink(root / "no device", data());
  agree(options(), "is a link to");
}

BOOST_AUTO_TEST_CASE(a_check_says_what_a_disk_lacks) {
  constexpr std::uint64_t much = std::uint64_t{1} << 50U;
  const auto at_first = refusal_of(options(much));
  BOOST_REQUIRE(at_first.has_value());
  BOOST_TEST((at_first->code() == error_code::no_space));
  BOOST_TEST(says(*at_first, std::to_string(much) + " bytes needed, "));
  BOOST_REQUIRE(path_file::open(options()).has_value());
  const auto later = refusal_of(options(much));
  BOOST_REQUIRE(later.has_value());
  BOOST_TEST((later->code() == error_code::no_space));
}

BOOST_AUTO_TEST_CASE(a_path_in_use_is_told_apart_by_a_check) {
  auto theirs = options();
  theirs.holder = "/run/theirs.sock";
  const other_process holder(theirs);
  for (const auto& with : {options(), theirs}) {
    const auto checked = refusal_of(with);
    BOOST_REQUIRE(checked.has_value());
    BOOST_TEST((checked->code() == error_code::deadline_exceeded));
    BOOST_TEST(says(*checked, "pid " + std::to_string(holder.pid())));
  }
}

BOOST_AUTO_TEST_CASE(a_check_refuses_metadata_that_is_no_directory) {
  BOOST_REQUIRE(path_file::open(options()).has_value());
  std::ofstream(path + "/metadata") << "x";
  const auto checked = refusal_of(options());
  BOOST_REQUIRE(checked.has_value());
  BOOST_TEST(says(*checked, path + "/metadata: Not a directory"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::nvme
