#include "core/folder_check.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

namespace cenote {

result<std::filesystem::path> existing_part(const std::filesystem::path& folder) {
  std::filesystem::path part = folder.empty() ? "." : folder;
  struct stat facts {};
  while (::stat(part.c_str(), &facts) != 0) {
    if (errno != ENOENT) return fail_errno("stat", part.native());
    if (::lstat(part.c_str(), &facts) == 0) return fail(error_code::system, part.native() + " is a link to nothing");
    part = part.has_parent_path() ? part.parent_path() : ".";
  }
  return part;
}

result<void> check_folder(const std::filesystem::path& folder) {
  const auto part = existing_part(folder);
  if (!part) return std::unexpected(part.error());
  std::error_code failed;
  if (!std::filesystem::is_directory(*part, failed))
    return fail(error_code::system, part->native() + " is not a directory");
  std::string draft = *part / ".cenote-check-XXXXXX";
  if (::mkdtemp(draft.data()) != nullptr) {
    if (::rmdir(draft.c_str()) != 0) return fail_errno("rmdir", draft);
    return {};
  }
  const int why = errno;
  const std::string place = *part == folder ? "make a file in " + folder.native() : "mkdir: " + folder.native();
  if (why != ENOSPC && why != EDQUOT) return fail_errno(why, place, {});
  return fail(error_code::no_space, place + ": no space is left there");
}

}  // namespace cenote
