#include "commands/operator/doctor.hpp"

#include <fmt/format.h>
#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>

#include "commands/common.hpp"
#include "config/machine_file.hpp"
#include "core/copy_measurement.hpp"
#include "core/copy_routines.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"
#include "core/unique_fd.hpp"
#include "core/units.hpp"
#include "worker/prerequisites.hpp"

namespace cenote {

namespace {

namespace fs = std::filesystem;
using level = finding::level;

constexpr std::uint64_t files_per_session = 8;
constexpr std::uint64_t wanted_files = 16'384;

std::string limit_text(rlim_t value, bool as_bytes) {
  if (value == RLIM_INFINITY) return "unlimited";
  return as_bytes ? approximate_bytes(value) : std::to_string(value);
}

finding check_memlock(std::uint64_t capacity) {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const auto found = limit_text(limit.rlim_max, true);
  if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= capacity || ::geteuid() == 0) {
    return {level::ok, "memlock", found};
  }
  return {level::warn, "memlock", found,
          "disk and network engines register the slabs: ulimit -l unlimited (systemd: LimitMEMLOCK=infinity, "
          "docker: --ulimit memlock=-1); without it they use plain buffers"};
}

finding check_open_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto found = limit_text(limit.rlim_max, false);
  if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= wanted_files) return {level::ok, "open files", found};
  return {level::warn, "open files", found,
          fmt::format("enough for about {} sessions; raise the hard limit to {} (systemd: LimitNOFILE)",
                      limit.rlim_max / files_per_session, wanted_files)};
}

finding check_io_uring(const fs::path& root) {
  io_uring_params parameters{};
  const unique_fd ring(static_cast<int>(::syscall(SYS_io_uring_setup, 4U, &parameters)));
  if (ring) return {level::ok, "io_uring", "available"};
  const int why = errno;
  const auto disabled = first_line(root / "proc/sys/kernel/io_uring_disabled");
  std::string remedy = "the NVMe tier uses threads instead, which cost more CPU";
  if (disabled && *disabled != "0") remedy += ": sysctl kernel.io_uring_disabled=0";
  if (why == EPERM) remedy += "; containers often forbid it: allow io_uring in the seccomp profile";
  return {level::warn, "io_uring", std::strerror(why), remedy};
}

// "always within_size [advise] never deny force" -> "advise"
std::string chosen(const std::optional<std::string>& line) {
  if (!line) return "not offered";
  const auto from = line->find('[');
  const auto to = line->find(']');
  return from == std::string::npos || to == std::string::npos ? *line : line->substr(from + 1, to - from - 1);
}

finding check_huge_pages(bool wanted, const fs::path& root) {
  const auto shmem = chosen(first_line(root / "sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  const auto reserved = first_line(root / "proc/sys/vm/nr_hugepages").value_or("0");
  const auto found = fmt::format("shared memory: {}; reserved: {}", shmem, reserved);
  const bool offered = shmem == "always" || shmem == "within_size" || shmem == "advise" || shmem == "force";
  if (!wanted) return {level::ok, "huge pages", found, "dram.huge_pages = off: the node does not ask for them"};
  if (offered || reserved != "0") return {level::ok, "huge pages", found};
  return {level::warn, "huge pages", found,
          "memory is populated, mapped and read faster with them: "
          "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"};
}

/// "read: AVX-512, 4 pages, 1.8 of memcpy", or "checksum: AVX2".
std::string copy_text(copy_case kind, const copy_decision& decision) {
  std::string name = fmt::format("{}: {}", name_of(kind), name_of_candidate(kind, decision.number));
  const double by_memcpy = decision.rate_of(memcpy_number);
  if (kind == copy_case::checksum || decision.number == memcpy_number || by_memcpy <= 0) return name;
  return name + fmt::format(", {:.2f} of memcpy", decision.rate_of(decision.number) / by_memcpy);
}

/// Shows the decisions that a node of this machine saved, or measures as a node does that starts here first.
finding check_copies(const fs::path& runtime_dir) {
  const auto loaded = load_decisions(decisions_file(runtime_dir), machine_identity());
  machine_decisions decisions = loaded.value_or(machine_decisions());
  if (!loaded) {
    if (const auto round = measure_round(decisions); !round)
      return {level::warn, "copies", "not measured", round.error().message()};
  }
  std::string text;
  for (std::size_t i = 0; i < copy_case_count; ++i) {
    const auto kind = static_cast<copy_case>(i);
    const copy_decision decision = decisions.decision_of(kind);
    if (decision.number != 0) text += (text.empty() ? "" : "; ") + copy_text(kind, decision);
  }
  return {level::ok, "copies", text};
}

finding check_populate(bool populate) {
  if (!populate) {
    return {level::warn, "populate", "off",
            "the first use of a page costs a put or a load microseconds: dram.populate = true touches memory ahead"};
  }
  if (kernel_version() >= std::pair(5, 14)) return {level::ok, "populate", "on"};
  return {level::warn, "populate", "on", "Linux 5.14 or newer is needed to touch memory ahead"};
}

finding check_user_namespace(const fs::path& root) {
  const auto map = first_line(root / "proc/self/uid_map").value_or("");
  // The initial user namespace maps all ids to themselves.
  if (map.find("4294967295") != std::string::npos) return {level::ok, "user namespace", "the host's"};
  return {level::warn, "user namespace", "of its own",
          "users outside are seen as nobody: list them in auth.allow_uids as this namespace sees them"};
}

// Before Linux 6.5 processes of another PID namespace cannot be watched, so they cannot attach.
finding check_pid_namespace(const fs::path& root) {
  // The kernel's threads are children of pid 2, which only the host's namespace has.
  const auto second = first_line(root / "proc/2/comm").value_or("");
  if (second == "kthreadd") return {level::ok, "PID namespace", "the host's"};
  if (kernel_version() >= first_with_peer_pidfds)
    return {level::ok, "PID namespace", "of its own: processes outside have no pids here"};
  return {level::warn, "PID namespace", "of its own",
          "before Linux 6.5 engines must share it to attach (docker: --pid=host or --pid=container:NODE, Kubernetes: "
          "shareProcessNamespace or hostPID)"};
}

std::string_view word_of(level severity) {
  switch (severity) {
    case level::ok: return "ok";
    case level::unknown: return "?";
    case level::warn: return "warn";
    case level::fail: return "FAIL";
  }
  return "";
}

exit_code run_doctor(const config_options& options) {
  const auto loaded = options.load();
  if (!loaded) return failed_with(loaded.error());
  const auto findings = examine(*loaded);
  fmt::print("{}", findings_text(findings));
  const bool failed = std::ranges::any_of(findings, [](const finding& each) { return each.severity == level::fail; });
  return failed ? exit_code::failed : exit_code::orderly;
}

finding check_congestion(const fs::path& root) {
  return {level::ok, "congestion control",
          first_line(root / "proc/sys/net/ipv4/tcp_congestion_control").value_or("not known")};
}

}  // namespace

std::vector<finding> examine(const config::node_config& config, const fs::path& root) {
  auto all = check_prerequisites(config, root);
  const bool huge_pages = config.dram.huge_pages == config::huge_pages::automatic;
  std::ranges::move(
      std::vector<finding>{check_memlock(config.dram.capacity), check_open_files(), check_io_uring(root),
                           check_copies(config::runtime_dir(config)), check_populate(config.dram.populate),
                           check_huge_pages(huge_pages, root), check_pid_namespace(root), check_user_namespace(root)},
      std::back_inserter(all));
  if (!config.cluster.name.empty()) all.push_back(check_congestion(root));
  return all;
}

std::string findings_text(const std::vector<finding>& findings) {
  std::string out;
  for (const auto& each : findings) {
    out += fmt::format("{:<5} {:<15} {}\n", word_of(each.severity), each.subject, printable(each.state));
    if (!each.remedy.empty()) out += fmt::format("      {:<15} -> {}\n", "", printable(each.remedy));
  }
  return out;
}

void add_doctor(CLI::App& app) {
  auto* command = app.add_subcommand("doctor", "Can this machine run a node well? What to change if not");
  auto options = std::make_shared<config_options>();
  options->file = config::machine_file();
  options->add_to(*command);
  command->callback([options] { end_with(run_doctor(*options)); });
}

}  // namespace cenote
