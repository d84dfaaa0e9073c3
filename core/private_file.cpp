#include "core/private_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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

}  // namespace cenote
