#include "services/indexer/scoring/scorer.hpp"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

namespace cenote::indexer {

namespace {

constexpr std::size_t first_group = 64;  // keys that are looked at before the others are made

key_space space_of(const score_question& question, const model_facts& facts, std::uint32_t block_tokens) {
  const bool is_adapter = facts.is_adapter && question.lora_name.empty();
  return {.model = question.model,
          .lora_name = is_adapter ? question.model : question.lora_name,
          .block_tokens = block_tokens};
}

}  // namespace

std::optional<scorer> scorer::open(forest& index, const token_processor& processor) {
  auto reader = prefix_reader::open(index);
  if (!reader) return std::nullopt;
  return scorer(std::move(*reader), processor);
}

score_answer scorer::score(const score_question& question) {
  scores_.clear();
  row_count_ = 0;
  names_.clear();
  has_doubles_ = false;
  const auto facts = reader_.model(question.model);
  if (!facts || facts->size_count == 0) return {};
  const std::uint32_t smallest = facts->sizes[0];
  if (question.tokens.empty()) {
    walk(question, *facts, smallest);
  } else {
    for (const std::uint32_t size : facts->block_sizes()) walk(question, *facts, size);
  }
  has_doubles_ = has_doubles_ || facts->size_count > 1;
  keep_best();
  find_degraded(facts->number);
  const std::size_t blocks = question.tokens.empty() ? question.block_keys.size() : question.tokens.size() / smallest;
  return {scores_, static_cast<std::uint32_t>(blocks), smallest, degraded_};
}

std::span<const std::uint64_t> scorer::keys_of(const score_question& question) {
  keys_.clear();
  const auto facts = reader_.model(question.model);
  if (!facts || facts->size_count == 0) return {};
  const key_space space = space_of(question, *facts, facts->sizes[0]);
  write_other_keys(question, space, write_first_keys(question, space));
  return keys_;
}

result<void> scorer::lookup(std::span<const std::uint64_t> keys, const holder_visitor& visit) {
  std::size_t sum = 0;
  reader_.lookup(keys, [&](std::size_t, std::span<const block_holder> holders) {
    sum += holders.size();
    if (sum > question_limits::holders) return;
    holders_.clear();
    for (const block_holder& each : holders) {
      const bool is_expected = each.slot == expected_slot;
      holders_.push_back({each.member->pod(), each.member->rank, is_expected ? gpu_medium : each.medium});
    }
    visit(holders_);
  });
  return check_holders(sum);
}

result<void> scorer::check_lists(const score_question& question) const {
  if (!question.has_lists()) return {};
  const auto facts = reader_.model(question.model);
  return indexer::check_lists(question, facts && facts->size_count > 0 ? facts->sizes[0] : 0);
}

// Prefixes of pods whose blocks have this size. Where the first key shows that no pod has anything, the others are not
// made.
void scorer::walk(const score_question& question, const model_facts& facts, std::uint32_t block_tokens) {
  std::span<const std::uint64_t> keys = question.block_keys;
  if (!question.tokens.empty()) {
    const key_space space = space_of(question, facts, block_tokens);
    const std::size_t first = write_first_keys(question, space);
    if (first == 0 || !reader_.is_known(keys_.front())) return;
    write_other_keys(question, space, first);
    keys = keys_;
  }
  reader_.walk({.keys = keys, .pods = question.pods, .model = &facts, .block_tokens = block_tokens},
               [&](std::span<const prefix_row> rows) { add_rows(rows, block_tokens, facts.sizes[0]); });
}

// Keys of the first group of whole blocks: how many.
std::size_t scorer::write_first_keys(const score_question& question, const key_space& space) {
  keys_.resize(question.tokens.size() / space.block_tokens);
  const token_run run{.tokens = question.tokens, .extra_keys = question.extra_keys, .parent = std::nullopt};
  return processor_->write_keys(run, space, std::span(keys_).first(std::min(keys_.size(), first_group)));
}

void scorer::write_other_keys(const score_question& question, const key_space& space, std::size_t first) {
  if (first == keys_.size()) return;
  token_run run{.tokens = question.tokens.subspan(first * space.block_tokens),
                .extra_keys = question.extra_keys,
                .parent = keys_[first - 1]};
  auto& lists = run.extra_keys.blocks;
  if (!lists.empty()) lists = lists.subspan(std::min(first, lists.size()));
  processor_->write_keys(run, space, std::span(keys_).subspan(first));
}

void scorer::add_rows(std::span<const prefix_row> rows, std::uint32_t block_tokens, std::uint32_t smallest) {
  const double scale = static_cast<double>(block_tokens) / smallest;
  if (rows_.size() < row_count_ + rows.size()) rows_.resize(row_count_ + rows.size());
  for (const prefix_row& row : rows) {
    const std::string_view pod = row.member->pod();
    ranked_row& added = rows_[row_count_++];  // all of it is written: rows that are made anew cost twice as much
    added.pod_hash = row.member->pod_hash;
    added.name = names_.size();
    added.length = static_cast<std::uint32_t>(pod.size());
    added.score.score = row.score * scale;
    added.score.blocks = row.blocks;
    added.score.tokens = row.blocks * block_tokens;
    added.score.dp_rank = row.member->rank;
    added.score.by_medium = row.by_medium;
    names_ += pod;
    has_doubles_ = has_doubles_ || row.member->rank != 0;
  }
}

// Pods of the model that may have more than the index knows, by name.
void scorer::find_degraded(model_number model) {
  degraded_.clear();
  degraded_names_.clear();
  std::vector<std::pair<std::size_t, std::size_t>> places;
  reader_.visit_degraded(model, [&](const pod_rank& member) {
    places.emplace_back(degraded_names_.size(), member.pod().size());
    degraded_names_ += member.pod();
  });
  for (const auto& [first, length] : places)
    degraded_.push_back(std::string_view(degraded_names_).substr(first, length));
  std::ranges::sort(degraded_);
  const auto rest = std::ranges::unique(degraded_);
  degraded_.erase(rest.begin(), rest.end());
}

// The best row of each pod, best first.
void scorer::keep_best() {
  const auto worth = [](const ranked_row& row) { return std::pair(-row.score.score, row.score.dp_rank); };
  if (has_doubles_) {
    const auto all = std::span(rows_).first(row_count_);
    std::ranges::sort(all, [&](const ranked_row& one, const ranked_row& other) {
      return std::tuple(one.pod_hash, worth(one)) < std::tuple(other.pod_hash, worth(other));
    });
    row_count_ -= std::ranges::unique(all, {}, &ranked_row::pod_hash).size();
  }
  order_.clear();
  worth_rows_.clear();
  for (std::uint32_t i = 0; i < row_count_; ++i) {
    ranked_row& row = rows_[i];
    if (row.score.score <= 0) continue;
    row.score.pod = std::string_view(names_).substr(row.name, row.length);
    order_.add(row.score.score, row.score.pod);
    worth_rows_.push_back(i);
  }
  for (const std::uint32_t place : order_.sorted()) scores_.push_back(rows_[worth_rows_[place]].score);
}

}  // namespace cenote::indexer
