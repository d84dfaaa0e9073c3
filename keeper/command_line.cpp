#include "keeper/command_line.hpp"

#include <unistd.h>

#include <sys/stat.h>
#include <algorithm>
#include <cstdlib>

namespace cenote {

std::vector<std::string> command_words(std::string_view text) {
  std::vector<std::string> words;
  while (true) {
    const auto begin = text.find_first_not_of(" \t");
    if (begin == std::string_view::npos) return words;
    const auto end = std::min(text.find_first_of(" \t", begin), text.size());
    words.emplace_back(text.substr(begin, end - begin));
    text.remove_prefix(end);
  }
}

std::string program_path(const std::string& name) {
  const auto is_program = [](const std::string& path) {
    struct stat file {};
    return ::stat(path.c_str(), &file) == 0 && S_ISREG(file.st_mode) && ::access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return is_program(name) ? name : "";
  const char* const value = std::getenv("PATH");
  std::string_view folders = value == nullptr ? "/usr/local/bin:/usr/bin:/bin" : value;
  while (!folders.empty()) {
    const auto end = std::min(folders.find(':'), folders.size());
    std::string path = std::string(folders.substr(0, end)) + "/" + name;
    if (end != 0 && is_program(path)) return path;
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  return "";
}

}  // namespace cenote
