#include "worker/service_unit.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <map>
#include <ranges>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "core/text.hpp"
#include "core/unique_fd.hpp"
#include "core/whole_file.hpp"
#include "keeper/child_process.hpp"
#include "transport/local/socket.hpp"

namespace cenote {

namespace {

namespace fs = std::filesystem;
using std::chrono::nanoseconds;

constexpr std::string_view suffix = ".service";
constexpr auto systemctl_patience = std::chrono::seconds(3);
constexpr std::size_t longest_unit_file = 1U << 20U;

/// Folders of units, the first of which wins. Those of generators have no node.
constexpr std::array unit_folders{
    "etc/systemd/system.control", "run/systemd/system.control",   "run/systemd/transient",  "etc/systemd/system",
    "run/systemd/system",         "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system",
};

struct span_unit {
  std::string_view name;
  std::int64_t nanoseconds = 0;
};

constexpr std::int64_t second = 1'000'000'000;
constexpr std::array span_units{
    span_unit{"", second},
    span_unit{"ns", 1},
    span_unit{"nsec", 1},
    span_unit{"us", 1'000},
    span_unit{"usec", 1'000},
    span_unit{"\u00b5s", 1'000},
    span_unit{"\u03bcs", 1'000},
    span_unit{"ms", 1'000'000},
    span_unit{"msec", 1'000'000},
    span_unit{"s", second},
    span_unit{"sec", second},
    span_unit{"second", second},
    span_unit{"seconds", second},
    span_unit{"m", 60 * second},
    span_unit{"min", 60 * second},
    span_unit{"minute", 60 * second},
    span_unit{"minutes", 60 * second},
    span_unit{"h", 3'600 * second},
    span_unit{"hr", 3'600 * second},
    span_unit{"hour", 3'600 * second},
    span_unit{"hours", 3'600 * second},
    span_unit{"d", 86'400 * second},
    span_unit{"day", 86'400 * second},
    span_unit{"days", 86'400 * second},
    span_unit{"w", 604'800 * second},
    span_unit{"week", 604'800 * second},
    span_unit{"weeks", 604'800 * second},
};

/// Takes one "1.5min" from the front of the text.
std::optional<double> take_piece(std::string_view& text) {
  double amount = 0;
  const auto [end, failure] = std::from_chars(text.begin(), text.end(), amount, std::chars_format::fixed);
  if (failure != std::errc() || !(amount >= 0)) return std::nullopt;
  text = trimmed(text.substr(static_cast<std::size_t>(end - text.begin())));
  const auto length = std::min(text.find_first_of("0123456789. \t"), text.size());
  const auto unit = std::ranges::find(span_units, text.substr(0, length), &span_unit::name);
  if (unit == span_units.end()) return std::nullopt;
  text = trimmed(text.substr(length));
  return amount * static_cast<double>(unit->nanoseconds);
}

/// The path in the hierarchy that systemd keeps: "0::/a" of version 2, "1:name=systemd:/a" of version 1.
std::string systemd_group(const fs::path& file) {
  std::ifstream in(file);
  std::string unified;
  for (std::string line; std::getline(in, line);) {
    if (const auto named = line.find(":name=systemd:"); named != std::string::npos)
      return line.substr(line.find('/', named));
    if (line.starts_with("0::")) unified = line.substr(3);
  }
  return unified;
}

using assignments = std::vector<std::pair<std::string, std::string>>;

/// The assignments of one section, lines that go on joined.
assignments read_section(const fs::path& file, std::string_view section) {
  std::error_code why;
  if (!fs::is_regular_file(file, why)) return {};  // a link to /dev/null masks it
  const auto text = read_whole(file, longest_unit_file);
  if (!text || !*text) return {};
  assignments found;
  std::string_view current;
  std::string pending;
  for (const auto line : std::views::split(**text, '\n')) {
    const auto piece = trimmed(std::string_view(line.begin(), line.end()));
    if (piece.starts_with('#') || piece.starts_with(';')) continue;
    pending += piece;
    if (pending.ends_with('\\')) {
      pending.back() = ' ';
      continue;
    }
    const std::string whole = std::exchange(pending, {});
    if (whole.starts_with('[')) current = whole == fmt::format("[{}]", section) ? section : "";
    const auto equals = whole.find('=');
    if (current.empty() || equals == std::string::npos) continue;
    found.emplace_back(trimmed(whole.substr(0, equals)), trimmed(whole.substr(equals + 1)));
  }
  return found;
}

/// Files *.conf of these folders by name, of those of one name the first.
std::vector<fs::path> drop_ins(const std::vector<fs::path>& folders) {
  std::map<std::string, fs::path> by_name;
  for (const fs::path& folder : folders) {
    std::error_code why;
    for (const auto& entry : fs::directory_iterator(folder, why))
      if (entry.path().extension() == ".conf") by_name.try_emplace(entry.path().filename(), entry.path());
  }
  std::vector<fs::path> files;
  files.reserve(by_name.size());
  for (auto& [name, file] : by_name) files.push_back(std::move(file));
  return files;
}

/// "cenote@.service" of "cenote@a.service".
std::string template_of(const std::string& name) {
  const auto at = name.find('@');
  return at == std::string::npos ? name : name.substr(0, at + 1) + std::string(suffix);
}

/// Nothing: there is none, or it is masked.
std::optional<fs::path> unit_file(const std::string& name, const fs::path& root) {
  for (const char* folder : unit_folders) {
    std::error_code why;
    const fs::path file = root / folder / name;
    if (!fs::exists(fs::symlink_status(file, why))) continue;
    if (fs::is_regular_file(file, why)) return file;
    return std::nullopt;
  }
  return std::nullopt;
}

/// [Service] of the unit and its drop-ins, in the order in which they hold.
assignments unit_assignments(const std::string& name, const fs::path& root) {
  auto file = unit_file(name, root);
  if (!file) file = unit_file(template_of(name), root);
  if (!file) return {};
  assignments all = read_section(*file, "Service");
  std::vector<fs::path> folders;
  for (const std::string& unit : {name, template_of(name), std::string("service")})
    for (const char* folder : unit_folders) folders.push_back(root / folder / (unit + ".d"));
  for (const fs::path& each : drop_ins(folders))
    std::ranges::move(read_section(each, "Service"), std::back_inserter(all));
  return all;
}

/// The last value that is a time span, where 0 is none.
std::optional<nanoseconds> stop_timeout(const assignments& all, std::initializer_list<std::string_view> keys) {
  std::optional<nanoseconds> limit;
  for (const auto& [key, value] : all) {
    if (std::ranges::find(keys, key) == keys.end()) continue;
    if (const auto span = parse_time_span(value)) limit = span->count() == 0 ? unlimited_stop : *span;
  }
  return limit;
}

nanoseconds default_stop_timeout(const fs::path& root) {
  assignments all = read_section(root / "etc/systemd/system.conf", "Manager");
  const std::vector<fs::path> folders{root / "etc/systemd/system.conf.d", root / "run/systemd/system.conf.d",
                                      root / "usr/lib/systemd/system.conf.d"};
  for (const fs::path& each : drop_ins(folders))
    std::ranges::move(read_section(each, "Manager"), std::back_inserter(all));
  return stop_timeout(all, {"DefaultTimeoutStopSec"}).value_or(std::chrono::seconds(90));
}

std::optional<nanoseconds> stop_limit_in_files(const std::string& name, const fs::path& root) {
  const auto all = unit_assignments(name, root);
  if (all.empty()) return std::nullopt;
  return stop_timeout(all, {"TimeoutStopSec", "TimeoutSec"}).value_or(default_stop_timeout(root));
}

/// The output of a program; empty where it fails or takes too long.
std::string output_of(const std::vector<std::string>& command) {
  const unique_fd output(::memfd_create("cenote-output", MFD_CLOEXEC));
  auto child = child_process::start({.command = command,
                                     .program = {},
                                     .inherit = -1,
                                     .die_with_parent = true,
                                     .discard_output = false,
                                     .input = -1,
                                     .output = output.get(),
                                     .errors = output.get(),
                                     .own_group = false,
                                     .close_others = true,
                                     .blocked_signals = {}});
  if (!output || !child) return {};
  if (!local::detail::wait_for(child->pidfd(), POLLIN, std::chrono::steady_clock::now() + systemctl_patience))
    return {};
  const auto end = child->ended();
  if (!end || end->by_signal || end->value != 0) return {};
  std::array<char, 4096> text{};
  const auto size = ::pread(output.get(), text.data(), text.size(), 0);
  return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : std::string();
}

std::optional<nanoseconds> stop_limit_by_systemctl(const service_unit& unit, const fs::path& root) {
  std::error_code why;
  if (!fs::is_directory(root / "run/systemd/system", why)) return std::nullopt;
  std::vector<std::string> command{root / "usr/bin/systemctl", "show", "--property=TimeoutStopUSec", "--value"};
  if (unit.manager == service_unit::owner::user) command.emplace_back("--user");
  command.insert(command.end(), {"--", unit.name});
  const std::string shown = output_of(command);
  return parse_time_span(std::string_view(shown).substr(0, shown.find('\n')));
}

/// Whether a word of the command names a program `cenote`, and a later one is `node`.
bool is_node_command(const std::string& command) {
  std::istringstream words(command);
  bool has_program = false;
  for (std::string word; words >> word;) {
    std::erase(word, '"');
    if (has_program && word == "node") return true;
    has_program = has_program || word == "cenote" || word.ends_with("/cenote");
  }
  return false;
}

bool runs_node(const assignments& all) {
  return std::ranges::any_of(
      all, [](const auto& setting) { return setting.first == "ExecStart" && is_node_command(setting.second); });
}

}  // namespace

std::optional<nanoseconds> parse_time_span(std::string_view text) {
  text = trimmed(text);
  if (text == "infinity") return unlimited_stop;
  if (text.empty()) return std::nullopt;
  double total = 0;
  while (!text.empty()) {
    const auto piece = take_piece(text);
    if (!piece) return std::nullopt;
    total += *piece;
  }
  if (!(total < static_cast<double>(unlimited_stop.count()))) return std::nullopt;
  return nanoseconds(static_cast<nanoseconds::rep>(total));
}

std::optional<service_unit> unit_of(pid_t process, const fs::path& root) {
  const std::string group = systemd_group(root / "proc" / std::to_string(process) / "cgroup");
  service_unit found;
  for (const fs::path& part : fs::path(group)) {
    const std::string& name = part.native();
    if (name.starts_with("user@")) found.manager = service_unit::owner::user;
    if (name.ends_with(suffix) || name.ends_with(".scope") || name.ends_with(".slice")) found.name = name;
  }
  if (!found.name.ends_with(suffix)) return std::nullopt;
  if (found.name.starts_with("user@")) found.manager = service_unit::owner::system;
  return found;
}

std::optional<nanoseconds> stop_limit_of(const service_unit& unit, const fs::path& root) {
  if (const auto shown = stop_limit_by_systemctl(unit, root)) return shown;
  if (unit.manager == service_unit::owner::user) return std::nullopt;
  return stop_limit_in_files(unit.name, root);
}

std::vector<service_unit> node_units(const fs::path& root) {
  std::set<std::string> names;
  for (const char* folder : unit_folders) {
    std::error_code why;
    for (const auto& entry : fs::directory_iterator(root / folder, why)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("cenote") && name.ends_with(suffix)) names.insert(name);
    }
  }
  std::vector<service_unit> units;
  for (const std::string& name : names)
    if (runs_node(unit_assignments(name, root))) units.push_back({service_unit::owner::system, name});
  return units;
}

}  // namespace cenote
