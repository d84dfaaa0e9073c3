#include "commands/replay/several_nodes.hpp"

#include <fmt/format.h>

#include "commands/table.hpp"

namespace cenote::replay {

namespace {

using nlohmann::ordered_json;

double token_share(std::uint64_t tokens, const tally& sums) {
  return ratio(static_cast<double>(tokens), static_cast<double>(sums.tokens.get()));
}

std::string fate_of(const node_result& node) {
  if (!node.killed_at) return "up";
  const std::string killed = fmt::format("killed at {:.1f} s", *node.killed_at);
  return killed + (node.back_after ? fmt::format(", back after {:.1f} s", *node.back_after) : ", not back");
}

std::vector<std::string> row_of(const std::string& name, std::uint64_t planned, const tally& sums,
                                const node_movement& moved, const std::string& fate) {
  const auto part = [&](std::uint64_t tokens) { return fmt::format("{:.2f}", 100 * token_share(tokens, sums)); };
  return {name,
          fmt::format("{} of {}", sums.requests.get(), planned),
          part(sums.hit_tokens.get()),
          part(sums.upper_tokens.get()),
          part(nvme_tokens_in(sums)),
          part(sums.remote_tokens.get()),
          std::to_string(moved.fetched),
          std::to_string(moved.lent),
          std::to_string(moved.hosted),
          std::to_string(sums.wrong.get()),
          std::to_string(sums.failed.get()),
          std::to_string(sums.down.get()),
          fate};
}

}  // namespace

std::vector<std::vector<std::string>> node_rows(const replay_result& replay) {
  std::vector<std::vector<std::string>> rows{{"node", "requests", "hit %", "DRAM %", "NVMe %", "remote %", "fetched",
                                              "lent", "hosted", "wrong", "failed", "node was down", "fate"}};
  for (const node_result& each : replay.nodes) {
    rows.push_back(row_of(each.name, each.planned, *each.sums, each.moved, fate_of(each)));
  }
  rows.push_back(row_of("all", replay.planned, *replay.sums, replay.moved, ""));
  return rows;
}

std::vector<std::pair<std::string, std::string>> pool_lines(const replay_result& replay) {
  std::vector<std::pair<std::string, std::string>> all;
  if (replay.nodes.size() < 2) return all;
  const double here = token_share(replay.sums->hit_tokens.get() - replay.sums->remote_tokens.get(), *replay.sums);
  all.emplace_back("remote hits add",
                   fmt::format("{} to {} of the nodes' own", percent(replay.hit_ratio() - here), percent(here)));
  if (replay.simulated_pool) {
    const simulated_nodes& pool = *replay.simulated_pool;
    const auto beside = [&](double other) {
      return fmt::format("{} of the tokens: this replay has {:.3f} of it", percent(other),
                         ratio(replay.hit_ratio(), other));
    };
    const std::string copies = pool.copies ? fmt::format("{:g} for copies", *pool.copies) : "no rule for copies";
    all.emplace_back("the same, simulated", fmt::format("{}; {}", beside(pool.hit_ratio), copies));
    all.emplace_back("one node of all DRAM", beside(pool.one_node_ratio));
    all.emplace_back("nodes without peers", beside(pool.alone_ratio));
  }
  if (replay.sums->down.get() > 0) {
    all.emplace_back("of the killed node",
                     fmt::format("{} requests whose engine's node was down", replay.sums->down.get()));
  }
  return all;
}

ordered_json nodes_json(const replay_result& replay) {
  ordered_json all = ordered_json::array();
  for (const node_result& each : replay.nodes) {
    const tally& sums = *each.sums;
    all.push_back({{"node", each.name},
                   {"planned", each.planned},
                   {"requests", sums.requests.get()},
                   {"failed_requests", sums.failed.get()},
                   {"node_was_down", sums.down.get()},
                   {"wrong_blocks", sums.wrong.get()},
                   {"tokens", sums.tokens.get()},
                   {"prefix_tokens", sums.hit_tokens.get()},
                   {"prefix_tokens_dram", sums.upper_tokens.get()},
                   {"prefix_tokens_nvme", nvme_tokens_in(sums)},
                   {"prefix_tokens_remote", sums.remote_tokens.get()},
                   {"hit_ratio", token_share(sums.hit_tokens.get(), sums)},
                   {"dram_capacity", each.dram_capacity},
                   {"nvme_capacity", each.nvme_capacity},
                   {"fetched", each.moved.fetched},
                   {"lent", each.moved.lent},
                   {"offered", each.moved.offered},
                   {"hosted", each.moved.hosted},
                   {"evicted", each.moved.evicted},
                   {"killed_at_s", each.killed_at ? ordered_json(*each.killed_at) : ordered_json(nullptr)},
                   {"back_after_s", each.back_after ? ordered_json(*each.back_after) : ordered_json(nullptr)}});
  }
  return all;
}

ordered_json simulated_nodes_json(const replay_result& replay) {
  if (!replay.simulated_pool) return nullptr;
  const simulated_nodes& pool = *replay.simulated_pool;
  const auto of = [&](double other) { return ratio(replay.hit_ratio(), other); };
  return {{"dram_blocks", pool.dram_blocks},
          {"copies", pool.copies ? ordered_json(*pool.copies) : ordered_json(nullptr)},
          {"hit_ratio", pool.hit_ratio},
          {"local_ratio", pool.local_ratio},
          {"one_node_ratio", pool.one_node_ratio},
          {"alone_ratio", pool.alone_ratio},
          {"of_simulated", of(pool.hit_ratio)},
          {"of_one_node", of(pool.one_node_ratio)}};
}

}  // namespace cenote::replay
