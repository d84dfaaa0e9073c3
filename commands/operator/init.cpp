#include "commands/operator/init.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "commands/common.hpp"
#include "commands/operator/doctor.hpp"
#include "config/schema.hpp"
#include "config/value.hpp"
#include "core/machine.hpp"
#include "core/solid_state.hpp"
#include "core/text.hpp"
#include "core/units.hpp"
#include "core/whole_file.hpp"

namespace cenote {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t line_width = 100;
constexpr std::uint64_t least_capacity = 64 * MiB;

struct init_options {
  std::string out;
  bool force = false;
};

/// As comment lines, broken at spaces.
std::string comment(std::string_view text) {
  std::string lines;
  std::string line;
  for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
    const auto word = text.substr(0, text.find(' '));
    if (!line.empty() && line.size() + 1 + word.size() > line_width) lines += "# " + std::exchange(line, {}) + '\n';
    line += (line.empty() ? "" : " ") + std::string(word);
    text.remove_prefix(word.size());
  }
  return line.empty() ? lines : lines + "# " + line + '\n';
}

enum class key_mode { active, suggested };

/// A key below the schema's sentence and a remark.
std::string key_text(std::string_view key, const config::typed_value& value, key_mode mode, std::string_view remark) {
  const config::key_schema& schema = *config::find_key(key);
  return fmt::format("\n{}{}{}{} = {}\n", comment(schema.about), comment(remark),
                     mode == key_mode::suggested ? "# " : "", key.substr(key.rfind('.') + 1), config::to_toml(value));
}

std::string found_by_doctor(const std::vector<finding>& findings, std::string_view subject) {
  const auto at = std::ranges::find(findings, subject, &finding::subject);
  return at == findings.end() ? std::string("not known") : printable(at->state);
}

/// In whole GiB where there is one.
std::uint64_t round_down(std::uint64_t bytes) {
  const std::uint64_t unit = bytes >= GiB ? GiB : MiB;
  return std::max(bytes / unit * unit, least_capacity);
}

struct memory_share {
  std::uint64_t bytes = 0;
  std::string reason;
};

memory_share share_of(const memory_limits& limits) {
  const std::uint64_t half = std::min(limits.total, limits.cgroup.value_or(limits.total)) / 2;
  const std::uint64_t spare = memory_to_spare(limits);
  if (spare < half) return {round_down(spare), "Here: what is free now, which is less than half."};
  return {round_down(half), "Here: half, since engines and everything else need memory, too."};
}

std::string dram_section(const fs::path& root) {
  const auto limits = read_memory_limits(root);
  const auto& schema = *config::find_key("dram.capacity");
  const memory_share share = limits ? share_of(*limits) : memory_share{};
  config::node_config config = config::default_config();
  config.dram.capacity = share.bytes;
  const auto findings = examine(config, root);
  std::string text = "[dram]\n";
  if (limits) {
    text += key_text("dram.capacity", config::byte_size{share.bytes}, key_mode::active,
                     fmt::format("{} Found: {}; cgroup of this command: {}.", share.reason,
                                 found_by_doctor(findings, "memory"), found_by_doctor(findings, "cgroup")));
  } else {
    text += key_text("dram.capacity", config::default_of(schema), key_mode::suggested, limits.error().message());
  }
  text += key_text("dram.huge_pages", config::default_of(*config::find_key("dram.huge_pages")), key_mode::suggested,
                   fmt::format("Found: {}.", found_by_doctor(findings, "huge pages")));
  const std::string numa = found_by_doctor(findings, "NUMA");
  text += key_text("dram.numa_node", config::default_of(*config::find_key("dram.numa_node")), key_mode::suggested,
                   fmt::format("Found: {}.", numa));
  return text;
}

/// A drop-in by which the unit, which sees the system read-only, may write to these directories.
std::string drop_in(const std::vector<std::string>& paths) {
  const auto all = fmt::format("{}", fmt::join(paths, " "));
  return fmt::format(
      "#   install -d -o cenote -g cenote -m 0700 {0}\n"
      "# and in /etc/systemd/system/cenote.service.d/disks.conf, before `systemctl daemon-reload`:\n"
      "#   [Unit]\n"
      "#   RequiresMountsFor={0}\n"
      "#   [Service]\n"
      "#   ReadWritePaths={0}\n",
      all);
}

std::string nvme_section(const std::vector<solid_state_mount>& disks) {
  std::string text = "\n[nvme]\n";
  if (disks.empty()) {
    return text + key_text("nvme.paths", std::vector<std::string>{}, key_mode::suggested,
                           "Found: no file system (ext4, XFS) of a solid-state disk beside the root's.");
  }
  std::vector<std::string> paths;
  paths.reserve(disks.size());
  std::string found = "Found:";
  std::uint64_t least = disks.front().free;
  for (const auto& each : disks) {
    paths.push_back(each.mount + "/cenote");
    least = std::min(least, each.free);
    found +=
        fmt::format(" {} ({}, {}) with {} free;", each.mount, each.kind, each.source, approximate_bytes(each.free));
  }
  found.back() = '.';
  text += comment(
              "A disk is never taken by itself: remove what should not be used, and the `# ` before the keys. Under "
              "systemd, run as root:") +
          drop_in(paths);
  text += key_text("nvme.paths", paths, key_mode::suggested, found);
  text += key_text("nvme.capacity", config::byte_size{round_down(least / 10 * 9) * disks.size()}, key_mode::suggested,
                   "Here: nine tenths of what is free, the same on each path.");
  text += key_text("nvme.require_mount", true, key_mode::suggested, "");
  return text;
}

exit_code run_init(const init_options& options) {
  const std::string text = machine_configuration();
  if (options.out.empty()) {
    fmt::print("{}", text);
    return exit_code::orderly;
  }
  const auto existing = options.force ? overwriting::allowed : overwriting::refused;
  if (auto written = write_configuration(options.out, text, existing); !written) return failed_with(written.error());
  fmt::print("{}: written; `cenote config check --config {}` checks it\n", printable(options.out),
             printable(options.out));
  return exit_code::orderly;
}

}  // namespace

std::string machine_configuration(const fs::path& root) {
  return comment(
             "A configuration for this machine, by `cenote init`. What is commented out is a default or a proposal. "
             "All keys: docs/configuration.md, or `cenote config document`. `cenote config check` checks this file; "
             "`cenote doctor` has what the machine's settings cost.") +
         '\n' + dram_section(root) + nvme_section(solid_state_mounts(root));
}

result<void> write_configuration(const fs::path& file, const std::string& text, overwriting existing) {
  struct stat old {};
  const bool is_there = ::stat(file.c_str(), &old) == 0;
  if (is_there && !S_ISREG(old.st_mode)) return fail(error_code::invalid_argument, file.native() + ": is no file");
  if (is_there && existing == overwriting::refused)
    return fail(error_code::invalid_argument, file.native() + ": is there already; --force replaces it");
  // Behind a link, not in its place.
  std::error_code ignored;
  fs::path target = fs::weakly_canonical(file, ignored);
  if (ignored) target = file;
  if (auto put = replace_whole(target, std::as_bytes(std::span(text))); !put) return put;
  if (is_there && ::geteuid() == 0 && ::chown(target.c_str(), old.st_uid, old.st_gid) != 0)
    return fail_errno("chown", target.native());
  if (::chmod(target.c_str(), is_there ? old.st_mode & 07777 : 0644) != 0) return fail_errno("chmod", target.native());
  return {};
}

void add_init(CLI::App& app) {
  auto* command = app.add_subcommand("init", "A commented configuration for this machine");
  auto options = std::make_shared<init_options>();
  command->add_option("--out", options->out, "File to write; without it the text goes to standard output");
  command->add_flag("--force", options->force, "Replace the file if it is there");
  command->callback([options] { end_with(run_init(*options)); });
}

}  // namespace cenote
