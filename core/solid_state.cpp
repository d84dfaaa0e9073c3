#include "core/solid_state.hpp"

#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "core/machine.hpp"

namespace cenote {

namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 2> kinds_with_direct_io{"ext4", "xfs"};

/// A line of /proc/self/mountinfo: "36 35 98:0 /part /mount rw,noatime shared:1 - ext4 /dev/sda1 rw".
struct mount_line {
  std::string device;  ///< "98:0"
  std::string part;    ///< of the file system; "/": all of it
  std::string options;
  solid_state_mount mount;
};

std::optional<mount_line> parse(const std::string& line) {
  const auto dash = line.find(" - ");
  if (dash == std::string::npos) return std::nullopt;
  mount_line found;
  std::string number;
  std::string parent;
  std::istringstream head(line.substr(0, dash));
  std::istringstream tail(line.substr(dash + 3));
  head >> number >> parent >> found.device >> found.part >> found.mount.mount >> found.options;
  tail >> found.mount.kind >> found.mount.source;
  return head && tail ? std::optional(found) : std::nullopt;
}

/// A configuration, a unit and a shell take it without quotes. mountinfo writes other characters as \040.
bool is_plain_path(std::string_view path) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+,:@";
  return path.find_first_not_of(letters) == std::string_view::npos;
}

/// A partition has no queue: its disk stands above it.
bool is_solid_state(const fs::path& root, const std::string& device) {
  const auto place = root / "sys/dev/block" / device;
  auto rotational = first_line(place / "queue/rotational");
  if (!rotational) rotational = first_line(place / "../queue/rotational");
  return rotational && *rotational == "0";
}

bool suits(const mount_line& line) {
  const std::string& place = line.mount.mount;
  return line.part == "/" && std::ranges::find(kinds_with_direct_io, line.mount.kind) != kinds_with_direct_io.end() &&
         (line.options + ',').starts_with("rw,") && is_plain_path(place) && is_plain_path(line.mount.source) &&
         place != "/" && place != "/boot" && !place.starts_with("/boot/");
}

}  // namespace

std::vector<solid_state_mount> solid_state_mounts(const fs::path& root) {
  std::vector<mount_line> lines;
  std::ifstream in(root / "proc/self/mountinfo");
  for (std::string text; std::getline(in, text);) {
    if (auto line = parse(text)) lines.push_back(std::move(*line));
  }
  std::set<std::string> listed;
  for (const mount_line& each : lines) {
    if (each.mount.mount == "/") listed.insert(each.device);
  }
  std::vector<solid_state_mount> found;
  for (mount_line& each : lines) {
    if (!suits(each) || !is_solid_state(root, each.device)) continue;
    struct statvfs space {};
    const auto place = root / fs::path(each.mount.mount).relative_path();
    if (::statvfs(place.c_str(), &space) != 0 || !listed.insert(each.device).second) continue;
    each.mount.free = std::uint64_t{space.f_bavail} * space.f_frsize;
    found.push_back(std::move(each.mount));
  }
  return found;
}

}  // namespace cenote
