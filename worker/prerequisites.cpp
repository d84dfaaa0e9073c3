#include "worker/prerequisites.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "actors/cluster_check.hpp"
#include "actors/tier_stack.hpp"
#include "core/machine.hpp"
#include "core/units.hpp"
#include "keeper/runtime_dir.hpp"
#include "memory/process_limits.hpp"
#include "memory/segment.hpp"
#include "transport/http/server.hpp"
#include "transport/local/socket.hpp"
#include "worker/stop_limit.hpp"

namespace cenote {

namespace {

namespace fs = std::filesystem;
using level = finding::level;

finding check_kernel() {
  utsname name{};
  ::uname(&name);
  if (const auto pages = memory::check_kernel_pages(); !pages)
    return {level::fail, "kernel", name.release, pages.error().message()};
  const auto version = kernel_version();
  if (version < std::pair(5, 4)) {
    return {
        level::fail, "kernel", name.release,
        fmt::format("this is Linux {}, and a node needs 5.4 or newer (pidfds); 6.5 or newer is best", name.release)};
  }
  if (version < first_with_peer_pidfds) {
    return {level::warn, "kernel", name.release,
            "before 6.5 a client's process is found by its pid, which leaves a short race when pids are reused"};
  }
  return {level::ok, "kernel", name.release};
}

finding check_memory(std::uint64_t capacity, const fs::path& root) {
  auto limits = read_memory_limits(root);
  if (!limits) return {level::warn, "memory", "unknown", limits.error().message()};
  limits->cgroup.reset();
  const auto state = fmt::format("{} in all, {} available, dram.capacity {}", approximate_bytes(limits->total),
                                 approximate_bytes(limits->available), approximate_bytes(capacity));
  if (const auto fits = check_capacity(capacity, *limits); !fits)
    return failure_of("dram.capacity", "memory", state, fits.error());
  if (capacity > limits->available) {
    return {level::warn, "memory", state,
            "other programs use what the DRAM tier would fill; choose a smaller "
            "dram.capacity unless a node of this capacity runs already"};
  }
  return {level::ok, "memory", state};
}

finding check_cgroup(std::uint64_t capacity, const fs::path& root) {
  auto limits = read_memory_limits(root);
  if (!limits || !limits->cgroup) return {level::ok, "cgroup", "no memory limit"};
  const auto state = fmt::format("memory limit {} ({})", approximate_bytes(*limits->cgroup), limits->cgroup_file);
  limits->total = ~std::uint64_t{0};
  if (const auto fits = check_capacity(capacity, *limits); !fits)
    return failure_of("dram.capacity", "cgroup", state, fits.error());
  if (capacity > *limits->cgroup / 10 * 9) {
    return {level::warn, "cgroup", state, "leave a tenth of the limit for everything beside the DRAM tier"};
  }
  return {level::ok, "cgroup", state};
}

finding check_limit(const memory::process_limit& limit) {
  rlimit now{};
  ::getrlimit(static_cast<__rlimit_resource>(limit.resource), &now);
  const std::string state = now.rlim_max == RLIM_INFINITY ? "unlimited" : approximate_bytes(now.rlim_max);
  if (const auto fits = memory::check_process_limit(limit, now.rlim_max); !fits)
    return {level::fail, std::string(limit.name), state, fits.error().message()};
  return {level::ok, std::string(limit.name), state};
}

finding check_numa(std::optional<int> node, const fs::path& root) {
  const auto online = first_line(root / "sys/devices/system/node/online").value_or("0");
  const bool is_single = online.find_first_of(",-") == std::string::npos;
  const std::string state = is_single ? "one node" : fmt::format("nodes {}", online);
  if (const auto known = check_numa_node(node, root); !known)
    return failure_of("dram.numa_node", "NUMA", state, known.error());
  if (is_single || node) return {level::ok, "NUMA", state};
  return {level::ok, "NUMA", state, "with engines on one socket, bind the slabs there: dram.numa_node"};
}

finding check_runtime(const config::node_config& config) {
  const std::string path = config::runtime_dir(config);
  return finding_of("node.runtime_dir", "runtime dir", path, check_runtime_dir(path));
}

finding check_socket(const config::node_config& config) {
  const std::string path = config::socket_path(config);
  const auto free = local::check_place(path);
  if (!free && free.error().code() == error_code::limit_exceeded)
    return {level::warn, "socket", path, free.error().message() + ": this one, or another", "node.socket"};
  return finding_of("node.socket", "socket", path, free);
}

/// The node serves without it, and tries it again.
finding check_metrics(const endpoint& address) {
  if (const auto taken = http::server::bind(address); !taken) {
    return {level::warn, "metrics port", taken.error().message(),
            "without it a probe of /healthz fails, and the node tries it again; metrics.listen may be taken by this "
            "node, if it runs now",
            "metrics.listen"};
  }
  return {level::ok, "metrics port", address.text()};
}

/// The node serves without spans.
finding check_collector(const config::trace_section& trace) {
  if (!trace.ca.empty() && ::access(trace.ca.c_str(), R_OK) != 0) {
    return {level::warn, "collector", trace.otlp, fmt::format("{} cannot be read, so no span is handed over", trace.ca),
            "trace.ca"};
  }
  return {level::ok, "collector", trace.otlp};
}

}  // namespace

// "6.1.0-13-amd64" -> {6, 1}
std::pair<int, int> kernel_version() {
  utsname name{};
  ::uname(&name);
  const std::string_view release = static_cast<const char*>(name.release);
  int major = 0;
  int minor = 0;
  const auto [dot, why] = std::from_chars(release.begin(), release.end(), major);
  if (why == std::errc() && dot != release.end()) std::from_chars(dot + 1, release.end(), minor);
  return {major, minor};
}

std::vector<finding> check_prerequisites(const config::node_config& config, const fs::path& root) {
  const auto limits = memory::process_limits(config.dram.capacity);
  std::vector<finding> all{check_kernel(),
                           check_memory(config.dram.capacity, root),
                           check_cgroup(config.dram.capacity, root),
                           check_limit(limits.at(0)),
                           check_limit(limits.at(1)),
                           check_numa(config.dram.numa_node, root),
                           check_runtime(config)};
  // The sentence about its directory is enough.
  const bool is_elsewhere = !config.node.socket.empty();
  if (is_elsewhere || all.back().severity == level::ok) all.push_back(check_socket(config));
  if (config.metrics.listen && config.metrics.listen->port != 0) all.push_back(check_metrics(*config.metrics.listen));
  all.push_back(check_stop_limit(config, root));
  if (!config.trace.otlp.empty()) all.push_back(check_collector(config.trace));
  std::ranges::move(check_lower_tiers(config), std::back_inserter(all));
  if (!config.cluster.name.empty()) std::ranges::move(check_cluster(config.cluster, root), std::back_inserter(all));
  return all;
}

}  // namespace cenote
