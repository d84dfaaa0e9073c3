#include "worker/live_page.hpp"

#include <unistd.h>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "core/page/html_parts.hpp"
#include "core/page/svg_chart.hpp"
#include "core/text.hpp"
#include "core/units.hpp"
#include "core/version.hpp"

namespace cenote {

namespace {

using table_rows = std::vector<std::vector<std::string>>;

constexpr std::size_t longest_list = 100;  // rows of a table

/// Replaces what the page shows every few seconds. It waits while the page is paused or not looked at, keeps lists open
/// that are, and has a line when the node does not answer.
constexpr std::string_view script = R"(
const live = document.getElementById("live"), note = document.getElementById("note"), pause = document.getElementById("pause");
let paused = false;
pause.addEventListener("click", () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
  if (!paused) look();
});
async function look() {
  if (paused || document.hidden) return;
  try {
    const answer = await fetch(location.pathname, {cache: "no-store", signal: AbortSignal.timeout(8000)});
    const text = await answer.text();
    if (!answer.ok) throw new Error(text.trim() || "status " + answer.status);
    const next = new DOMParser().parseFromString(text, "text/html").getElementById("live");
    const lists = [...live.querySelectorAll("details")];
    const focused = lists.findIndex(each => each.contains(document.activeElement));
    live.replaceChildren(...next.childNodes);
    [...live.querySelectorAll("details")].forEach((each, i) => {
      each.open = lists[i]?.open ?? false;
      if (i === focused) each.querySelector("summary").focus();
    });
    note.textContent = "";
  } catch (why) {
    note.textContent = "The node does not answer: " + why.message;
  }
}
setInterval(look, 5000);
)";

std::string number_text(std::uint64_t number) {
  return with_separators(std::to_string(number));
}

std::string percent_text(double ratio) {
  return fmt::format("{:.1f} %", 100 * ratio);
}

std::string share_text(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? std::string("-") : percent_text(static_cast<double>(part) / static_cast<double>(whole));
}

std::string seconds_text(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "-";
  return approximate_duration(std::chrono::nanoseconds(std::llround(seconds * 1e9)));
}

std::string_view last_name(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

/// "last_error" as "last error".
std::string heading_of(std::string_view path) {
  std::string name(last_name(path));
  std::ranges::replace(name, '_', ' ');
  return name;
}

std::string value_text(const figure_value& value) {
  const auto text = [&](auto number) -> std::string {
    const auto real = static_cast<double>(number);
    if (value.unit == "seconds") return seconds_text(real);
    if (value.unit == "bytes") return approximate_bytes(static_cast<std::uint64_t>(std::max(real, 0.0)));
    if (value.unit == "bytes/s") return approximate_bytes(static_cast<std::uint64_t>(std::max(real, 0.0))) + "/s";
    if constexpr (std::is_same_v<decltype(number), std::uint64_t>) return number_text(number);
    return fmt::format("{:.3g}", real);
  };
  return std::visit(text, value.value);
}

/// A table of the first rows, and the number of the others. `rows` begins with the heading; there are `all` beside it.
std::string section(std::string_view title, table_rows rows, std::size_t all) {
  if (all == 0) return "";
  for (auto& row : rows) {
    for (std::string& cell : row) cell = printable(cell);
  }
  std::string text = fmt::format("<section><h2>{}</h2>\n{}", escape_html(title), html_table(rows));
  if (all > longest_list) text += fmt::format("<p>{} more are left out here.</p>\n", number_text(all - longest_list));
  return text + "</section>\n";
}

/// The same with a row of each of the first of `list`.
std::string section(std::string_view title, std::vector<std::string> heading, const auto& list, const auto& row_of) {
  table_rows rows{std::move(heading)};
  for (const auto& each : std::span(list).first(std::min(list.size(), longest_list))) rows.push_back(row_of(each));
  return section(title, std::move(rows), list.size());
}

// ---------------------------------------------------------------------------------------------- good and bad

struct sentence {
  std::string text;
  bool is_bad = false;
};

void judge_hits(std::vector<sentence>& all, const node_facts& facts, const hit_span& hour) {
  if (hour.looked_up > 0) {
    std::string text =
        fmt::format("{} of {} tokens that engines looked up in the last hour were here",
                    share_text(hour.hits + hour.lower_hits, hour.looked_up), number_text(hour.looked_up));
    if (hour.lower_hits > 0) text += fmt::format(", {} of them below DRAM", number_text(hour.lower_hits));
    all.push_back({text + "."});
  } else if (facts.report->dram.sessions.empty()) {
    all.push_back({"No engine is attached."});
  } else {
    all.push_back({"No engine has looked anything up in the last hour."});
  }
}

/// Parts with a gauge of 0 where 1 is right: paths, backends, devices, nodes.
void judge_parts(std::vector<sentence>& all, const tier_report& tier) {
  for (const report_part& part : tier.parts) {
    if (part.owner) continue;
    std::string why;
    for (const report_text& each : part.texts) {
      const auto* text = std::get_if<std::string>(&each.value);
      const bool is_reason = last_name(each.path) == "why" || last_name(each.path) == "last_error";
      if (text != nullptr && is_reason && !text->empty()) why = ": " + *text;
    }
    for (const report_text& each : part.texts) {
      if (each.metric.empty() || each.gauge != 0) continue;
      const auto* text = std::get_if<std::string>(&each.value);
      const std::string state = text != nullptr ? *text : "does not serve";
      all.push_back({fmt::format("{} {} {}: {}{}.", tier.name, part.label, part.name, state, why), true});
      break;
    }
  }
}

void judge_counts(std::vector<sentence>& all, const node_facts& facts) {
  const blocks::store_counters& counters = facts.report->dram.counters;
  const auto count = [&](std::uint64_t number, std::string_view text) {
    if (number > 0) all.push_back({fmt::format("{} {}.", number_text(number), text), true});
  };
  count(facts.figures.restarts, "times the worker ended and was started anew: its log says why");
  count(facts.figures.exceptions, "pieces of work were ended by an exception: the log has them");
  count(facts.figures.log_dropped, "lines of the log were dropped, since nobody read it");
  count(counters.checksum_errors, "blocks were dropped, since their bytes were not those of their checksums");
  count(counters.no_space, "times a put found no room, since all blocks were pinned, kept or being written");
}

std::vector<sentence> judge(const node_facts& facts, const hit_span& hour) {
  std::vector<sentence> all;
  judge_hits(all, facts, hour);
  const std::size_t good = all.size();
  for (const tier_report_ptr& each : facts.report->described()) judge_parts(all, *each);
  judge_counts(all, facts);
  if (all.size() == good) all.push_back({"All tiers serve, and nothing was lost since the worker began."});
  return all;
}

std::string sentences_html(const std::vector<sentence>& all) {
  std::string text;
  for (std::size_t i = 0; i < std::min(all.size(), longest_list); ++i) {
    text += fmt::format("<p class=\"{}\"><b>{}</b></p>\n", all[i].is_bad ? "bad" : "good",
                        escape_html(printable(all[i].text)));
  }
  return text;
}

// ---------------------------------------------------------------------------------------------- the last hour

std::string cards_html(const node_facts& facts, const hit_span& hour) {
  const blocks::store_status& dram = facts.report->dram;
  const std::vector<page_card> cards{
      {share_text(hour.hits + hour.lower_hits, hour.looked_up), "hits of the last hour, in tokens"},
      {number_text(hour.looked_up), "tokens looked up in the last hour"},
      {share_text(dram.used, dram.capacity), fmt::format("of {} DRAM used", approximate_bytes(dram.capacity))},
      {number_text(dram.present), "blocks in DRAM"},
      {number_text(dram.sessions.size()), "sessions"},
      {seconds_text(facts.figures.uptime_s), "since the node began"}};
  return html_of(cards);
}

std::string hits_html(std::span<const hit_span> hits, std::chrono::system_clock::time_point now) {
  chart plot{.title = "Hits over the last hour",
             .x = {.label = "minutes ago", .low = -60, .high = 0},
             .y = {.label = "tokens found of those looked up", .low = 0, .high = 1},
             .series = {{.name = "in DRAM"}, {.name = "in any tier", .dashed = true}}};
  for (const int minutes : {60, 50, 40, 30, 20, 10, 0})
    plot.x.ticks.push_back({-static_cast<double>(minutes), std::to_string(minutes)});
  for (const int percent : {0, 25, 50, 75, 100})
    plot.y.ticks.push_back({percent / 100.0, fmt::format("{} %", percent)});
  plot.x.show = [](double value) { return fmt::format("{:.1f} min ago", -value); };
  plot.y.show = [](double value) { return percent_text(value); };
  for (const hit_span& each : hits) {
    if (each.looked_up == 0) continue;
    const double minutes = std::chrono::duration<double, std::ratio<60>>(each.end - now).count();
    const auto all = static_cast<double>(each.looked_up);
    plot.series[0].points.push_back({minutes, static_cast<double>(each.hits) / all});
    plot.series[1].points.push_back({minutes, static_cast<double>(each.hits + each.lower_hits) / all});
  }
  return plot.series[0].points.empty() ? "" : figure_of(plot);
}

// ---------------------------------------------------------------------------------------------- tables

/// The value at `name` in the tier's own words: "nvme.used" for `used`.
std::optional<std::string> value_named(const std::vector<figure_value>& values, std::string_view name) {
  const auto found = std::ranges::find_if(values, [&](const figure_value& each) {
    return path_in_element(each.path) == name || last_name(each.path) == name;
  });
  return found == values.end() ? std::nullopt : std::optional(value_text(*found));
}

std::vector<std::string> tier_row(std::string name, const std::vector<figure_value>& gauges,
                                  const std::vector<figure_value>& counters) {
  std::vector<std::string> row{std::move(name)};
  for (const std::string_view each : {"used", "capacity", "blocks"})
    row.push_back(value_named(gauges, each).value_or("-"));
  for (const std::string_view each : {"written", "read", "evicted"})
    row.push_back(value_named(counters, each).value_or("-"));
  return row;
}

std::string tiers_html(const node_facts& facts) {
  table_rows rows{{"tier", "used", "capacity", "blocks", "written", "read", "evicted"}};
  const blocks::store_status& dram = facts.report->dram;
  for (const tier_report_ptr& each : facts.report->described()) {
    for (const report_part& part : each->parts) {
      if (part.list == "gpu.devices") rows.push_back(tier_row("gpu " + part.name, part.figures, part.figures));
    }
  }
  rows.push_back({"dram", approximate_bytes(dram.used), approximate_bytes(dram.capacity), number_text(dram.present),
                  number_text(dram.counters.commits), "-", number_text(dram.counters.evicted)});
  for (const tier_report_ptr& each : facts.report->lower)
    rows.push_back(tier_row(each->name, each->gauges, each->counters));
  return section("Tiers", rows, rows.size() - 1);
}

/// A table whose columns come with the cells: not every row has one in each.
class keyed_table {
 public:
  void begin_row(std::string name) { cells_.push_back({std::move(name)}); }
  void put(std::string_view path, std::string cell) {
    const auto found = std::ranges::find(paths_, path);
    const auto column = 1 + static_cast<std::size_t>(found - paths_.begin());
    if (found == paths_.end()) paths_.push_back(path);
    auto& row = cells_.back();
    row.resize(std::max(row.size(), column + 1));
    row[column] = std::move(cell);
  }
  /// The heading, which begins with `label`, and all rows.
  [[nodiscard]] table_rows rows(std::string_view label) const {
    table_rows all{{std::string(label)}};
    for (const std::string_view path : paths_) all.front().push_back(heading_of(path));
    all.insert(all.end(), cells_.begin(), cells_.end());
    for (auto& row : all) row.resize(all.front().size());
    return all;
  }

 private:
  std::vector<std::string_view> paths_;
  table_rows cells_;
};

/// The parts of one list: names, texts, and gauges.
table_rows rows_of(const tier_report& tier, std::string_view list) {
  keyed_table rows;
  std::string_view label;
  for (const report_part& part : tier.parts) {
    if (part.list != list || part.owner) continue;
    label = part.label;
    rows.begin_row(part.name);
    for (const report_text& each : part.texts) {
      const auto* text = std::get_if<std::string>(&each.value);
      rows.put(each.path, text != nullptr ? *text : std::get<bool>(each.value) ? "yes" : "no");
    }
    for (const figure_value& each : part.figures) {
      if (each.kind == figure_kind::gauge && !each.path.empty()) rows.put(each.path, value_text(each));
    }
  }
  return label.empty() ? table_rows() : rows.rows(label);
}

/// Drops columns that have nothing in them, or the rows' names once more.
void drop_empty_columns(table_rows& rows) {
  if (rows.empty()) return;
  for (std::size_t column = rows.front().size(); column-- > 1;) {
    const bool is_empty = std::ranges::all_of(rows.begin() + 1, rows.end(), [&](const auto& row) {
      const std::string& cell = row[column];
      return cell.empty() || cell == "0" || cell == "-" || cell == "0 B" || cell == row.front();
    });
    if (!is_empty) continue;
    for (auto& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  }
}

std::string parts_html(const tier_report& tier) {
  std::vector<std::string_view> lists;
  for (const report_part& each : tier.parts) {
    if (std::ranges::find(lists, each.list) == lists.end()) lists.push_back(each.list);
  }
  std::string text;
  for (const std::string_view list : lists) {
    table_rows rows = rows_of(tier, list);
    drop_empty_columns(rows);
    const std::size_t all = rows.empty() ? 0 : rows.size() - 1;
    rows.resize(std::min(rows.size(), longest_list + 1));
    text += section(fmt::format("{}: {}", tier.name, heading_of(list)), std::move(rows), all);
  }
  return text;
}

/// The gain of loads from below, against computing.
std::string loads_html(const node_facts& facts) {
  const prefetch::status& from = facts.report->prefetch;
  if (facts.report->lower.empty() || from.started == 0) return "";
  const std::string speed =
      from.bytes_per_s > 0
          ? fmt::format("Loads run at {}/s, the first byte comes after {}. ",
                        approximate_bytes(static_cast<std::uint64_t>(from.bytes_per_s)), seconds_text(from.latency_s))
          : "";
  return fmt::format(
      "<section><h2>Loads from below</h2>\n<p>{}{} prefetches; of {} to compute, {} were saved and {} were spent "
      "waiting, "
      "{} of those in vain. {} loads could not win and were not made.</p></section>\n",
      escape_html(speed), number_text(from.started), seconds_text(from.recompute_s), seconds_text(from.saved_s),
      seconds_text(from.waited_s), seconds_text(from.lost_s),
      number_text(from.by_reason[static_cast<std::size_t>(prefetch::reason::cannot_win)]));
}

std::string groups_html(const blocks::store_status& dram) {
  return section("Instance groups", {"instance group", "priority", "used", "quota", "share", "kept"}, dram.accounts,
                 [](const blocks::account_status& account) -> std::vector<std::string> {
                   return {account.name,
                           std::string(name_of(account.priority)),
                           approximate_bytes(account.used),
                           account.quota == 0 ? "none" : approximate_bytes(account.quota),
                           share_text(account.used, account.quota),
                           approximate_bytes(account.kept)};
                 });
}

std::vector<std::string> row_of_instance(const blocks::instance_status& instance) {
  const bool asks = instance.match_tokens > 0;
  const std::uint64_t all = asks ? instance.match_tokens : instance.read_tokens;
  const std::uint64_t hits = asks ? instance.match_resident_tokens : instance.read_resident_tokens;
  return {instance.id,
          instance.group,
          number_text(instance.present),
          approximate_bytes(instance.bytes),
          number_text(instance.sessions),
          number_text(all),
          number_text(hits),
          share_text(hits, all)};
}

std::vector<std::string> row_of_session(const blocks::session_status& session,
                                        const std::vector<session_report>& reports) {
  const auto known =
      std::ranges::find_if(reports, [&](const session_report& each) { return each.session->number == session.number; });
  const bool is_known = known != reports.end();
  const bool asks = session.match_keys > 0;
  return {
      std::to_string(session.number),
      is_known ? known->session->client_name : "",
      is_known ? std::to_string(known->session->pid) : "",
      session.instance,
      session.is_ended    ? "ended"
      : session.connected ? "attached"
                          : "disconnected",
      number_text(session.pins),
      number_text(session.grants),
      share_text(asks ? session.match_resident : session.read_resident, asks ? session.match_keys : session.read_keys)};
}

std::string clients_html(const node_report& report) {
  return section("Instances",
                 {"instance", "group", "blocks", "memory", "sessions", "tokens looked up", "found in DRAM", "hits"},
                 report.dram.instances, row_of_instance) +
         section("Sessions", {"session", "client", "process", "instance", "state", "pins", "grants", "hits"},
                 report.dram.sessions,
                 [&](const blocks::session_status& each) { return row_of_session(each, report.sessions); });
}

}  // namespace

std::string live_page(const node_facts& facts, std::span<const hit_span> hits,
                      std::chrono::system_clock::time_point now) {
  const hit_span hour = sum_of(hits);
  std::string body = fmt::format(
      "<header><h1>Cenote node</h1>\n<p>{} {}, worker {} of epoch {} <button id=\"pause\" type=\"button\" "
      "aria-pressed=\"false\">Pause</button></p>\n<p id=\"note\" class=\"bad\" role=\"status\"></p></header>\n",
      product_version(), escape_html(printable(facts.socket_path)), ::getpid(), facts.epoch);
  std::string live = fmt::format("<p>As of {:%F %T} UTC</p>\n", fmt::gmtime(now)) + sentences_html(judge(facts, hour)) +
                     cards_html(facts, hour) + hits_html(hits, now) + tiers_html(facts) + loads_html(facts);
  for (const tier_report_ptr& each : facts.report->described()) live += parts_html(*each);
  live += groups_html(facts.report->dram) + clients_html(*facts.report);
  body += "<div id=\"live\">\n" + live + "</div>\n";
  return html_of(html_document{.title = "Cenote node", .body = body, .script = std::string(script)});
}

}  // namespace cenote
