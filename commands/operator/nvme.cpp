#include "commands/operator/nvme.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <ctime>
#include <memory>

#include "commands/common.hpp"
#include "commands/table.hpp"
#include "core/text.hpp"
#include "core/units.hpp"

namespace cenote {

namespace {

using nlohmann::json;

struct nvme_options {
  std::string path;
  bool as_json = false;
};

std::string hex(std::uint64_t number) {
  return fmt::format("{:016x}", number);
}

std::string time_text(std::uint32_t seconds) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

std::vector<std::string> group_names(const instance_spec& spec) {
  std::vector<std::string> names;
  names.reserve(spec.groups.size());
  for (const group_spec& group : spec.groups) names.push_back(group.name);
  return names;
}

json sum_json(const block_sum& sum) {
  json one = {{"blocks", sum.blocks}, {"bytes", sum.bytes}, {"oldest", nullptr}, {"newest", nullptr}};
  if (sum.blocks > 0) {
    one["oldest"] = sum.oldest;
    one["newest"] = sum.newest;
  }
  return one;
}

std::string instances_text(const std::vector<instance_summary>& instances) {
  table rows({"IDENTITY", "ID", "MODEL", "GROUPS", ">BLOCKS", ">BYTES", "OLDEST", "NEWEST"});
  for (const instance_summary& each : instances) {
    const bool any = each.sum.blocks > 0;
    rows.add({identity_text(each.identity), each.spec ? each.spec->id : "unknown",
              each.spec ? each.spec->model : "unknown",
              each.spec ? fmt::format("{}", fmt::join(group_names(*each.spec), ",")) : "unknown",
              std::to_string(each.sum.blocks), approximate_bytes(each.sum.bytes),
              any ? time_text(each.sum.oldest) : "-", any ? time_text(each.sum.newest) : "-"});
  }
  return rows.empty() ? std::string() : "\nINSTANCES\n" + rows.text();
}

void print(const json& object) {
  fmt::print("{}\n", object.dump(2, ' ', true, json::error_handler_t::replace));
}

exit_code unusable(const error& why) {
  complain(why.code() == error_code::malformed
               ? error(why.code(), why.message() + "; a node would set it aside and start empty")
               : why);
  return exit_code::failed;
}

exit_code run_inspect(const nvme_options& options) {
  const auto store = closed_store::open(options.path);
  if (!store) return unusable(store.error());
  const auto found = store->summarize();
  if (!found) return unusable(found.error());
  if (options.as_json) {
    print(to_json(*found));
  } else {
    fmt::print("{}", text_of(*found));
  }
  return exit_code::orderly;
}

exit_code run_verify(const nvme_options& options) {
  const auto store = closed_store::open(options.path);
  if (!store) return unusable(store.error());
  const auto found = store->verify();
  if (!found) return unusable(found.error());
  if (options.as_json) {
    print(to_json(*found));
  } else {
    fmt::print("{}", text_of(*found));
  }
  return found->all_right() ? exit_code::orderly : exit_code::failed;
}

void add_one(CLI::App& to, const std::string& name, const std::string& about, exit_code (*run)(const nvme_options&)) {
  auto* command = to.add_subcommand(name, about);
  auto options = std::make_shared<nvme_options>();
  command->add_option("path", options->path, "The store's directory, as in nvme.paths")->required();
  command->add_flag("--json", options->as_json, "Print JSON");
  command->callback([options, run] { end_with(run(*options)); });
}

}  // namespace

json to_json(const store_summary& store) {
  json all = {
      {"directory", store.directory}, {"store_id", hex(store.store_id)}, {"format", nvme::path_file::format_version},
      {"direct", store.direct},       {"data_bytes", store.data_bytes},  {"metadata_bytes", store.metadata_bytes},
      {"damaged", store.damaged},     {"instances", json::array()}};
  all.update(sum_json(store.sum));
  for (const instance_summary& each : store.instances) {
    json one = {{"identity", identity_text(each.identity)}, {"id", nullptr}, {"model", nullptr}, {"groups", nullptr}};
    if (each.spec)
      one.update({{"id", each.spec->id}, {"model", each.spec->model}, {"groups", group_names(*each.spec)}});
    one.update(sum_json(each.sum));
    all["instances"].push_back(std::move(one));
  }
  return all;
}

json to_json(const verify_report& report) {
  json all = {{"directory", report.directory}, {"store_id", hex(report.store_id)},
              {"engine", report.engine},       {"direct", report.direct},
              {"blocks", report.blocks},       {"bytes", report.bytes},
              {"wrong", report.wrong},         {"damaged", report.damaged},
              {"seconds", report.seconds},     {"gib_per_s", report.gib_per_second()},
              {"wrong_blocks", json::array()}};
  for (const wrong_block& each : report.named) {
    all["wrong_blocks"].push_back({{"instance", each.instance},
                                   {"identity", identity_text(each.block.instance)},
                                   {"group", each.block.group},
                                   {"key", hex_text(each.block.full.view())},
                                   {"offset", each.block.offset},
                                   {"bytes", each.block.bytes},
                                   {"why", each.why}});
  }
  return all;
}

std::string text_of(const store_summary& store) {
  std::string text = fmt::format("store     {}, format {}, {}\n", hex(store.store_id), nvme::path_file::format_version,
                                 store.directory);
  text += fmt::format("data      {}, {}\n", approximate_bytes(store.data_bytes),
                      store.direct ? "direct I/O" : "no direct I/O");
  text += fmt::format("metadata  {}, {} damaged records\n", approximate_bytes(store.metadata_bytes), store.damaged);
  text += fmt::format("blocks    {} in {}", store.sum.blocks, approximate_bytes(store.sum.bytes));
  if (store.sum.blocks > 0) {
    text += fmt::format(", last used from {} to {}", time_text(store.sum.oldest), time_text(store.sum.newest));
  }
  return text + "\n" + instances_text(store.instances);
}

std::string text_of(const verify_report& report) {
  std::string text =
      fmt::format("checked   {} blocks, {} at {:.2f} GiB/s ({}, {})\n", report.blocks, approximate_bytes(report.bytes),
                  report.gib_per_second(), report.engine, report.direct ? "direct I/O" : "no direct I/O");
  text += fmt::format("wrong     {} blocks, {} damaged records\n", report.wrong, report.damaged);
  if (report.named.empty()) return text;
  table rows({"INSTANCE", ">GROUP", "KEY", ">OFFSET", ">BYTES", "WHY"});
  for (const wrong_block& each : report.named) {
    rows.add({each.instance, std::to_string(each.block.group), hex_text(each.block.full.view()),
              std::to_string(each.block.offset), std::to_string(each.block.bytes), each.why});
  }
  const std::uint64_t more = report.wrong - report.named.size();
  return text + "\nWRONG BLOCKS\n" + rows.text() + (more > 0 ? fmt::format("  and {} more\n", more) : "");
}

void add_nvme(CLI::App& app) {
  auto* command = app.add_subcommand("nvme", "Look at a store of the NVMe tier that no node has open");
  command->require_subcommand(1);
  add_one(*command, "inspect", "What the store holds", run_inspect);
  add_one(*command, "verify", "Read every block and compare its checksum", run_verify);
}

}  // namespace cenote
