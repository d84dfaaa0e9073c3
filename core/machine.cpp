#include "core/machine.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>
#include <vector>

#include "core/units.hpp"

namespace cenote {

namespace {

namespace fs = std::filesystem;

// cgroup v1 writes "no limit" as a huge number of whole pages.
constexpr std::uint64_t v1_unlimited = 1ULL << 62;

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (why != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// "MemTotal:       16384 kB"
std::optional<std::uint64_t> meminfo_bytes(const fs::path& root, std::string_view key) {
  std::ifstream in(root / "proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const auto digits = line.find_first_of("0123456789");
    if (digits == std::string::npos) return std::nullopt;
    const auto kib = number_in(std::string_view(line).substr(digits));
    return kib ? std::optional(*kib * 1024) : std::nullopt;
  }
  return std::nullopt;
}

// A hierarchy that bounds memory: its mount, this process's place in it, and the file that holds a limit.
struct hierarchy {
  fs::path mount;
  std::string place;
  std::string file;
  std::string usage;
};

// "0::/a/b" is v2, "7:memory:/a/b" is v1.
std::vector<hierarchy> memory_hierarchies(const fs::path& root) {
  std::vector<hierarchy> found;
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const auto controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const auto place = line.substr(second + 1);
    if (controllers == ",,") {
      found.push_back({root / "sys/fs/cgroup", place, "memory.max", "memory.current"});
      found.push_back({root / "sys/fs/cgroup/unified", place, "memory.max", "memory.current"});
    } else if (controllers.find(",memory,") != std::string::npos) {
      found.push_back({root / "sys/fs/cgroup/memory", place, "memory.limit_in_bytes", "memory.usage_in_bytes"});
    }
  }
  return found;
}

// What a group takes but for files that the kernel may drop at any time; shared memory is none of those.
std::uint64_t lasting_use(const fs::path& place, const std::string& file) {
  const auto line = first_line(place / file);
  std::uint64_t use = line ? number_in(*line).value_or(0) : 0;
  std::ifstream in(place / "memory.stat");
  for (std::string name, value; in >> name >> value;) {
    if (name == "active_file" || name == "inactive_file") use -= std::min(use, number_in(value).value_or(0));
  }
  return use;
}

// Every ancestor bounds its children; a container may see only some of them.
void apply(const hierarchy& where, memory_limits& limits) {
  for (fs::path place = fs::path(where.place).relative_path();; place = place.parent_path()) {
    const auto file = where.mount / place / where.file;
    const auto line = first_line(file);
    const auto value = line ? number_in(*line) : std::nullopt;
    const bool bounds = value && *value < v1_unlimited;
    if (bounds) {
      const std::uint64_t use = lasting_use(where.mount / place, where.usage);
      limits.cgroup_left = std::min(limits.cgroup_left.value_or(*value), *value - std::min(*value, use));
    }
    if (bounds && (!limits.cgroup || *value < *limits.cgroup)) {
      limits.cgroup = value;
      limits.cgroup_file = file.native();
    }
    if (place.empty()) return;
  }
}

// "0-1,4" has 0, 1 and 4.
bool has_number(std::string_view list, int wanted) {
  while (!list.empty()) {
    const auto item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    int first = 0;
    const char* const end = item.data() + item.size();
    const auto [dash, why] = std::from_chars(item.data(), end, first);
    if (why != std::errc()) continue;
    int last = first;
    if (dash != end && *dash == '-') std::from_chars(dash + 1, end, last);
    if (wanted >= first && wanted <= last) return true;
  }
  return false;
}

}  // namespace

result<void> check_numa_node(std::optional<int> node, const fs::path& root) {
  const auto online = first_line(root / "sys/devices/system/node/online");
  if (!node || !online || has_number(*online, *node)) return {};
  return fail(error_code::invalid_config, "dram.numa_node = " + std::to_string(*node) +
                                              ": this machine has no such node; it has " + *online +
                                              ", and -1 binds to none");
}

processor_fields read_processor_fields(const fs::path& root) {
  processor_fields found;
  std::ifstream file(root / "proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto name_end = line.find_last_not_of(" \t", colon == 0 ? 0 : colon - 1);
    const auto value = std::min(line.find_first_not_of(' ', colon + 1), line.size());
    found.emplace(line.substr(0, name_end + 1), line.substr(value));
  }
  return found;
}

std::optional<std::string> first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return line;
}

result<memory_limits> read_memory_limits(const fs::path& root) {
  const auto total = meminfo_bytes(root, "MemTotal:");
  if (!total) return fail(error_code::unsupported, "/proc/meminfo does not say how much memory there is");
  memory_limits limits;
  limits.total = *total;
  limits.available = meminfo_bytes(root, "MemAvailable:").value_or(*total);
  for (const auto& where : memory_hierarchies(root)) apply(where, limits);
  return limits;
}

std::uint64_t memory_to_spare(const memory_limits& limits) noexcept {
  const auto spare = [](std::uint64_t left, std::uint64_t of) {
    return left - std::min({left, of / 32, std::uint64_t{256} << 20});
  };
  const std::uint64_t machine = spare(limits.available, limits.total);
  return limits.cgroup ? std::min(machine, spare(limits.cgroup_left.value_or(0), *limits.cgroup)) : machine;
}

std::uint64_t memory_to_spare() {
  const auto limits = read_memory_limits();
  return limits ? memory_to_spare(*limits) : ~std::uint64_t{0};
}

result<void> check_capacity(std::uint64_t bytes, const memory_limits& limits) {
  if (bytes > limits.total) {
    return fail(error_code::invalid_config, "dram.capacity = " + format_bytes(bytes) +
                                                " is more than this machine's memory of " +
                                                approximate_bytes(limits.total) + "; choose less");
  }
  if (limits.cgroup && bytes > *limits.cgroup) {
    return fail(error_code::invalid_config, "dram.capacity = " + format_bytes(bytes) +
                                                " is more than the cgroup's memory limit of " +
                                                approximate_bytes(*limits.cgroup) + " (" + limits.cgroup_file +
                                                "); choose less, or raise the limit (systemd: MemoryMax, Kubernetes: "
                                                "resources.limits.memory)");
  }
  return {};
}

result<void> check_capacity(std::uint64_t bytes) {
  const auto limits = read_memory_limits();
  if (!limits) return {};
  return check_capacity(bytes, *limits);
}

}  // namespace cenote
