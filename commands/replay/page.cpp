#include "commands/replay/page.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <sstream>
#include <thread>

#include "core/machine.hpp"
#include "core/text.hpp"
#include "core/units.hpp"
#include "core/version.hpp"

namespace cenote::replay {

namespace {

constexpr double most_bytes = 9e18;  // of an axis

/// JSON that may stand in a page: nothing in it ends the element.
std::string embedded(const nlohmann::ordered_json& data) {
  std::string out;
  for (const char each : data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) {
    if (each == '<') {
      out += "\\u003c";
    } else {
      out += each;
    }
  }
  return out;
}

/// As a shell takes it.
std::string shell_word(const std::string& word) {
  if (!word.empty() && word.find_first_of(" \t\n\"'\\$&|;<>()*?[]{}~#!`") == std::string::npos) return word;
  std::string out = "'";
  for (const char each : word) {
    if (each == '\'') {
      out += "'\\''";
    } else {
      out += each;
    }
  }
  return out + "'";
}

std::string own_command() {
  std::ifstream file("/proc/self/cmdline");
  std::string out;
  for (std::string word; std::getline(file, word, '\0');) {
    out += (out.empty() ? "" : " ") + shell_word(word);
  }
  return out;
}

std::string processor() {
  const processor_fields fields = read_processor_fields();
  const auto model = fields.find("model name");
  return model == fields.end() ? "unknown processor" : model->second;
}

/// What sets one class of machines apart from another; no name of this one.
std::string host_class() {
  utsname system{};
  ::uname(&system);
  const auto memory = read_memory_limits();
  return fmt::format("{}, {} cores, {:.0f} GiB of memory, {} {}", processor(),
                     std::max(1U, std::thread::hardware_concurrency()),
                     memory ? static_cast<double>(memory->total) / GiB : 0.0, system.sysname, system.release);
}

/// The file that a page is to be, and the one that is written first: the same one where it is no plain file.
struct page_place {
  std::filesystem::path target;
  std::filesystem::path fresh;
};

page_place place_of(const std::string& path) {
  std::error_code unknown;
  const auto state = std::filesystem::status(path, unknown);
  const bool is_plain = !std::filesystem::exists(state) || std::filesystem::is_regular_file(state);
  if (!is_plain || path.starts_with("/dev/")) return {path, path};
  std::filesystem::path target(path);
  if (std::filesystem::exists(state)) {
    if (auto real = std::filesystem::canonical(path, unknown); !unknown) target = std::move(real);
  }
  std::filesystem::path fresh = target;
  fresh += fmt::format(".{}.new", ::getpid());
  return {std::move(target), std::move(fresh)};
}

}  // namespace

std::string html_of(const page& what) {
  return html_of(html_document{.title = what.title, .body = what.body, .data = embedded(what.data)});
}

result<void> write_page(const std::string& path, const std::string& html) {
  const page_place place = place_of(path);
  std::ofstream file(place.fresh, std::ios::trunc);
  file << html;
  file.close();
  if (file && (place.fresh == place.target || ::rename(place.fresh.c_str(), place.target.c_str()) == 0)) return {};
  auto failed = fail_errno("write", path);
  if (place.fresh != place.target) ::unlink(place.fresh.c_str());
  return failed;
}

result<void> check_writable(const std::string& path) {
  if (path.empty()) return {};
  const page_place place = place_of(path);
  std::error_code unknown;
  if (std::filesystem::is_directory(place.target, unknown)) return fail_errno(EISDIR, "open", path);
  const std::ofstream file(place.fresh, std::ios::app);
  if (!file) return fail_errno("open", path);
  if (place.fresh != place.target) ::unlink(place.fresh.c_str());
  return {};
}

std::string html_table(const std::vector<std::vector<std::string>>& rows) {
  auto cells = rows;
  for (auto& row : cells) {
    for (std::size_t i = 1; i < row.size(); ++i) row[i] = with_separators(row[i]);
  }
  return cenote::html_table(cells);
}

std::string html_table(const table& rows) {
  auto cells = rows.rows();
  for (std::string& name : cells.front()) {
    if (name.starts_with('>')) name.erase(0, 1);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  }
  for (auto& row : cells) {
    row.resize(cells.front().size());
    for (std::string& cell : row) cell = printable(cell);
  }
  return html_table(cells);
}

std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t indent) {
  std::vector<std::string> heading;
  for (std::string name : rows.front()) {
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    heading.push_back(heading.empty() ? name : ">" + name);
  }
  table text(std::move(heading));
  for (const auto& row : std::span(rows).subspan(1)) text.add(row);
  return text.text(indent);
}

chart_axis percent_axis(std::string label, double high) {
  chart_axis axis{.label = std::move(label), .high = high};
  for (const double value : round_ticks(0, high * 100, 5))
    axis.ticks.push_back({value / 100, fmt::format("{:g} %", value)});
  axis.show = [](double value) { return fmt::format("{:.2f} %", value * 100); };
  return axis;
}

chart_axis duration_axis(const std::vector<chart_series>& us) {
  const auto text = [](double at) { return approximate_duration(std::chrono::nanoseconds(std::llround(at * 1000))); };
  double low = 1e18;
  double high = 0;
  for (const auto& series : us) {
    for (const auto& point : series.points) {
      low = std::min(low, point.y);
      high = std::max(high, point.y);
    }
  }
  if (high <= 0) low = high = 1;
  chart_axis axis{.label = "time, logarithmic", .logarithmic = true};
  axis.low = std::pow(10.0, std::floor(std::log10(std::max(low, 0.01))));
  axis.high = std::max(axis.low * 10, std::pow(10.0, std::ceil(std::log10(high) - 1e-9)));
  const auto decades = std::lround(std::log10(axis.high / axis.low));
  for (long i = 0; i <= decades; ++i) {
    const double at = axis.low * std::pow(10.0, static_cast<double>(i));
    axis.ticks.push_back({at, text(at)});
  }
  axis.show = text;
  return axis;
}

chart_axis capacity_axis(const std::vector<double>& blocks, std::uint64_t block_bytes) {
  const auto text = [block_bytes](double value) {
    if (block_bytes == 0) return with_separators(fmt::format("{:.0f}", value));
    return approximate_bytes(
        static_cast<std::uint64_t>(std::min(value * static_cast<double>(block_bytes), most_bytes)));
  };
  chart_axis axis{.label = "capacity, logarithmic", .low = 1, .high = 10, .logarithmic = true};
  if (block_bytes == 0) axis.label = "capacity in blocks, logarithmic";
  if (!blocks.empty()) {
    // 0 has no place on such an axis: it stands in front of the smallest one, at half of it.
    std::vector<double> some;
    std::ranges::copy_if(blocks, std::back_inserter(some), [](double each) { return each > 0; });
    const double smallest = some.empty() ? 1.0 : std::ranges::min(some);
    axis.low = std::max(1.0, some.size() < blocks.size() ? smallest / 2 : smallest);
    axis.high = std::max(axis.low, std::ranges::max(blocks));
  }
  for (const double each : blocks) axis.ticks.push_back({each, text(each)});
  std::ranges::sort(axis.ticks, {}, &chart_tick::value);
  axis.show = [text, block_bytes](double value) {
    const std::string count = with_separators(fmt::format("{:.0f}", value)) + " blocks";
    return block_bytes == 0 ? count : fmt::format("{} ({})", text(value), count);
  };
  return axis;
}

provenance provenance_of(std::string_view generated) {
  provenance from{
      .version = std::string(product_version()), .command = own_command(), .host = host_class(), .seed = {}};
  if (generated.empty()) return from;
  const auto at = generated.find("seed=");
  from.seed = at == std::string_view::npos ? "1" : std::string(generated.substr(at + 5));
  from.seed = from.seed.substr(0, from.seed.find(','));
  return from;
}

std::string html_of(const provenance& origin) {
  std::string out = fmt::format("<p>cenote {}; {}{}</p>\n", escape_html(origin.version), escape_html(origin.host),
                                origin.seed.empty() ? "" : "; seed " + escape_html(origin.seed));
  return out + fmt::format("<p><code>{}</code></p>\n", escape_html(origin.command));
}

nlohmann::ordered_json json_of(const provenance& origin) {
  return {{"version", origin.version}, {"command", origin.command}, {"host", origin.host}, {"seed", origin.seed}};
}

}  // namespace cenote::replay
