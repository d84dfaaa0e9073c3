#include "simulation/optimize/prefix_tree.hpp"

#include <algorithm>
#include <numeric>

namespace cenote::simulation {

namespace {

constexpr std::uint32_t no_parent = ~std::uint32_t{0};

struct tree_node {
  std::uint32_t parent = no_parent;
  std::uint32_t depth = 0;
  std::uint32_t children = 0;
  std::uint32_t uses = 0;
  std::uint32_t instance = 0;
  std::uint64_t tokens_saved = 0;
  bool is_there = false;
};

class tree_pass {
 public:
  explicit tree_pass(const trace& trace) : trace_(trace), nodes_(trace.distinct()) {}

  /// Whether it goes on as one tree.
  bool take(const trace::entry& request, std::uint32_t hits) {
    std::uint32_t parent = no_parent;
    std::uint32_t depth = 0;
    for (const std::uint32_t block : trace_.blocks(request)) {
      tree_node& node = nodes_[block];
      if (!node.is_there) {
        node = {.parent = parent, .depth = depth, .instance = request.instance, .is_there = true};
        if (parent != no_parent) ++nodes_[parent].children;
      }
      if (node.parent != parent) return false;
      if (request.access != chain_access::write) ++node.uses;
      if (depth < hits) node.tokens_saved += tokens_at(request, depth);
      parent = block;
      ++depth;
    }
    return true;
  }

  [[nodiscard]] tree_shape shape() const {
    tree_shape shape{.nodes = nodes_.size()};
    for (const tree_node& each : nodes_) {
      shape.roots += each.parent == no_parent ? 1 : 0;
      shape.leaves += each.children == 0 ? 1 : 0;
      shape.forks += each.children > 1 ? 1 : 0;
      shape.depth = std::max<std::uint64_t>(shape.depth, each.depth + std::uint64_t{1});
    }
    return shape;
  }

  [[nodiscard]] std::vector<tree_run> runs() const {
    std::vector<tree_run> runs;
    std::vector<std::uint32_t> run_numbers(nodes_.size());
    for (std::size_t i = 0; i < nodes_.size(); ++i) {  // a parent has a lower number than what comes behind it
      const tree_node& node = nodes_[i];
      const bool is_root = node.parent == no_parent;
      if (is_root || nodes_[node.parent].children > 1) {
        run_numbers[i] = static_cast<std::uint32_t>(runs.size());
        runs.push_back({.parent = is_root ? std::nullopt : std::optional(run_numbers[node.parent]),
                        .depth = node.depth,
                        .uses = node.uses,
                        .instance = node.instance});
      } else {
        run_numbers[i] = run_numbers[node.parent];
      }
      runs[run_numbers[i]].blocks += 1;
      runs[run_numbers[i]].tokens_saved += node.tokens_saved;
    }
    return runs;
  }

 private:
  [[nodiscard]] std::uint64_t tokens_at(const trace::entry& request, std::uint64_t depth) const {
    const std::uint64_t size = trace_.block_tokens();
    return request.tokens > depth * size ? std::min(size, request.tokens - depth * size) : 0;
  }

  const trace& trace_;
  std::vector<tree_node> nodes_;
};

}  // namespace

std::optional<prefix_tree> prefix_tree::measure(const trace& trace, std::span<const std::uint32_t> hits) {
  tree_pass over(trace);
  for (std::size_t i = 0; i < hits.size(); ++i) {
    if (!over.take(trace.requests()[i], hits[i])) return std::nullopt;
  }
  prefix_tree tree;
  tree.shape_ = over.shape();
  tree.runs_ = over.runs();
  return tree;
}

std::vector<std::uint32_t> prefix_tree::hottest(std::size_t limit) const {
  std::vector<std::uint32_t> order(runs_.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(std::min(limit, order.size()));
  std::ranges::partial_sort(order, end, [&](std::uint32_t a, std::uint32_t b) {
    return runs_[a].tokens_saved != runs_[b].tokens_saved ? runs_[a].tokens_saved > runs_[b].tokens_saved : a < b;
  });
  order.erase(end, order.end());
  return order;
}

}  // namespace cenote::simulation
