#include "core/private_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "core/random_number.hpp"
#include "core/unique_fd.hpp"

namespace cenote {

result<private_file> read_private_file(const std::filesystem::path& path, std::size_t most_bytes, mode_t forbidden) {
  const unique_fd opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe would keep who opens it
  if (!opened) return fail_errno("open", path.native());
  struct stat facts {};
  if (::fstat(opened.get(), &facts) != 0) return fail_errno("fstat", path.native());
  if (!S_ISREG(facts.st_mode)) return fail(error_code::invalid_argument, path.native() + ": is no regular file");
  if ((facts.st_mode & forbidden) != 0) {
    return fail(error_code::permission_denied,
                path.native() + ": others can read or write it; `chmod 600 " + path.native() + "`");
  }
  private_file found{.text = std::string(most_bytes + 1, '\0'), .owner = facts.st_uid};
  const ssize_t size = ::read(opened.get(), found.text.data(), found.text.size());
  if (size < 0) return fail_errno("read", path.native());
  found.text.resize(static_cast<std::size_t>(size));
  return found;
}

namespace {

/// Under a name of its own, which a rename or link gives up.
result<void> write_new_file(const std::filesystem::path& path, const std::string& text) {
  const unique_fd made(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (!made) return fail_errno("open", path.native());
  if (::fchmod(made.get(), S_IRUSR | S_IWUSR) != 0) return fail_errno("fchmod", path.native());  // whatever the umask
  const ssize_t written = ::write(made.get(), text.data(), text.size());
  if (written < 0) return fail_errno("write", path.native());
  if (static_cast<std::size_t>(written) != text.size()) return fail(error_code::system, path.native() + ": disk full");
  if (::fsync(made.get()) != 0) return fail_errno("fsync", path.native());
  return {};
}

}  // namespace

result<void> make_private_file(const std::filesystem::path& path, const std::string& text) {
  std::error_code failed;
  std::filesystem::create_directories(path.parent_path(), failed);
  if (failed) return fail(error_code::system, path.parent_path().native() + ": " + failed.message());
  const std::filesystem::path draft = path.native() + "." + std::to_string(random_number());
  const auto written = write_new_file(draft, text);
  // A link does not take the place of a file that another process made meanwhile.
  const bool is_linked = written && ::link(draft.c_str(), path.c_str()) == 0;
  const auto linked = is_linked || !written || errno == EEXIST ? written : fail_errno("link", path.native());
  ::unlink(draft.c_str());
  return linked;
}

}  // namespace cenote
