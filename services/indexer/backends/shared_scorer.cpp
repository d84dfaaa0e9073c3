#include "services/indexer/backends/shared_scorer.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "services/indexer/backends/index_commands.hpp"
#include "services/indexer/backends/pod_entry.hpp"
#include "services/indexer/events/engine_event.hpp"

namespace cenote::indexer {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t key_group = 64;                     // keys that are asked for before the next ones are made
constexpr std::size_t most_fields = 16'384;               // that are kept as they were read
constexpr std::size_t most_new_fields = 4 * most_fields;  // until then within a question
constexpr std::size_t most_foreign = 4096;                // models whose sizes were asked for
constexpr std::uint64_t most_block_tokens = 1U << 24U;
constexpr auto sizes_last = 2s;

}  // namespace

result<std::unique_ptr<shared_scorer>> shared_scorer::make(redis::server_access access, const token_processor& keys,
                                                           const shared_facts& facts, shared_counters& counters,
                                                           std::uint32_t block_tokens) {
  auto client = redis::waiting_client::make(std::move(access));
  if (!client) return std::unexpected(client.error());
  return std::unique_ptr<shared_scorer>(new shared_scorer(std::move(*client), keys, facts, counters, block_tokens));
}

shared_scorer::shared_scorer(redis::waiting_client client, const token_processor& keys, const shared_facts& facts,
                             shared_counters& counters, std::uint32_t block_tokens)
    : client_(std::move(client)),
      processor_(keys),
      facts_(facts),
      counters_(counters),
      block_tokens_(block_tokens),
      sheet_(facts.sheet()) {
  for (const block_medium each : enumerators_of(block_medium{})) {
    if (each != block_medium::other) media_.emplace_back(name_of(each));
  }
}

void shared_scorer::refresh() {
  deadline_ = redis::present_time() + question_limit;
  is_answered_ = true;
  if (const std::uint64_t version = facts_.version(); version != version_) {
    sheet_ = facts_.sheet();
    version_ = version;
  }
  if (fields_.size() < most_fields && pods_.size() < most_fields) return;
  fields_.clear();
  pod_numbers_.clear();
  pods_.clear();
}

score_answer shared_scorer::score(const score_question& question) {
  refresh();
  rows_.clear();
  scores_.clear();
  degraded_.clear();
  const auto sizes = sizes_of(question);
  const std::uint32_t smallest = sizes.empty() ? 0 : sizes.front();
  if (!question.tokens.empty()) {
    for (const std::uint32_t size : sizes) walk(question, size, static_cast<double>(size) / smallest);
  } else if (!question.block_keys.empty()) {
    walk(question, smallest, 1.0);
  }
  if (!is_answered_) {
    rows_.clear();
    ++counters_.unanswered;
  }
  keep_best();
  if (const auto pods = sheet_->degraded.find(question.model); pods != sheet_->degraded.end()) {
    degraded_.assign(pods->second.begin(), pods->second.end());
  }
  const std::size_t blocks = question.tokens.empty() ? question.block_keys.size()
                             : smallest == 0         ? 0
                                                     : question.tokens.size() / smallest;
  return {scores_, static_cast<std::uint32_t>(blocks), smallest, degraded_};
}

std::span<const std::uint64_t> shared_scorer::keys_of(const score_question& question) {
  const std::uint32_t size = block_tokens_of(question);
  keys_.clear();
  if (size == 0) return keys_;
  const std::size_t blocks = question.tokens.size() / size;
  for (std::size_t first = 0; first < blocks;) first += write_group(question, size, first);
  return keys_;
}

std::uint32_t shared_scorer::block_tokens_of(const score_question& question) {
  refresh();
  const auto sizes = sizes_of(question);
  return sizes.empty() ? 0 : sizes.front();
}

// Those of this indexer's publishers, else what other replicas have written, else the configured one.
std::vector<std::uint32_t> shared_scorer::sizes_of(const score_question& question) {
  const std::string name(question.lora_name.empty() ? question.model : question.lora_name);
  if (const auto known = sheet_->sizes.find(name); known != sheet_->sizes.end()) return known->second;
  if (foreign_sizes_.size() >= most_foreign) foreign_sizes_.clear();
  auto& [sizes, until] = foreign_sizes_[name];
  if (redis::present_time() >= until) {
    const std::string command = shared_commands::list_sizes(name);
    std::vector<std::uint32_t> present;
    const bool is_answered = run({&command, 1}, [&](std::size_t, const redis::server_reply& reply) {
      for (const std::string_view text : reply.list) {
        const auto size = shared_keys::block_key_in(text);
        const bool is_size = size && *size > 0 && *size <= most_block_tokens;
        if (is_size && present.size() < shared_facts::most_sizes) present.push_back(static_cast<std::uint32_t>(*size));
      }
    });
    if (is_answered) {
      std::ranges::sort(present);
      sizes = std::move(present);
      until = redis::present_time() + sizes_last;
    }
  }
  if (sizes.empty() && block_tokens_ != 0) return {block_tokens_};
  return sizes;
}

// Keys of the next group of whole blocks, behind those that keys_ has.
std::size_t shared_scorer::write_group(const score_question& question, std::uint32_t block_tokens, std::size_t first) {
  const std::size_t blocks = question.tokens.size() / block_tokens;
  const std::size_t count = std::min(key_group, blocks - first);
  token_run run{.tokens = question.tokens.subspan(first * block_tokens),
                .extra_keys = question.extra_keys,
                .parent = first == 0 ? std::nullopt : std::optional(keys_[first - 1])};
  auto& lists = run.extra_keys.blocks;
  if (!lists.empty()) lists = lists.subspan(std::min(first, lists.size()));
  const key_space space{.model = question.model, .lora_name = question.lora_name, .block_tokens = block_tokens};
  keys_.resize(first + count);
  return processor_.write_keys(run, space, std::span(keys_).subspan(first));
}

// Group by group, so that a prompt that no pod has costs one.
void shared_scorer::walk(const score_question& question, std::uint32_t block_tokens, double scale) {
  const bool has_tokens = !question.tokens.empty();
  const std::size_t blocks = has_tokens ? question.tokens.size() / block_tokens : question.block_keys.size();
  const std::size_t first_row = rows_.size();
  row_places_.clear();
  keys_.clear();
  scale_ = scale;
  size_ = block_tokens;
  for (std::size_t first = 0; first < blocks;) {
    const std::size_t count =
        has_tokens ? write_group(question, block_tokens, first) : std::min(key_group, blocks - first);
    if (!ask(has_tokens ? std::span<const std::uint64_t>(keys_).subspan(first)
                        : question.block_keys.subspan(first, count))) {
      return;
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (!add_block(question, replies_[i], first + i + 1, first_row)) return;
    }
    first += count;
  }
}

/// The next block, whose number is from 1. False: no pod has it and all before.
bool shared_scorer::add_block(const score_question& question, const field_list& fields, std::size_t number,
                              std::size_t first_row) {
  for (const known_field& field : fields) {
    pod_row* const row = row_of(question, field.pod, first_row, number);
    if (row != nullptr && row->is_alive) hold(*row, number, field.medium);
  }
  bool is_any_alive = false;
  for (std::size_t i = first_row; i < rows_.size(); ++i) {
    pod_row& row = rows_[i];
    if (!row.is_alive) continue;
    row.is_alive = row.last_block == number;
    if (!row.is_alive) continue;
    is_any_alive = true;
    row.score.score += row.weight * scale_;
    ++row.score.blocks;
    row.score.tokens += size_;
    ++row.score.by_medium[row.medium];
  }
  return is_any_alive;
}

void shared_scorer::hold(pod_row& row, std::size_t number, medium_number medium) const {
  const double weight = weight_of(medium);
  if (row.last_block == number && weight <= row.weight) return;
  row.last_block = number;
  row.medium = medium;
  row.weight = weight;
}

/// The row of a pod that has all blocks so far; null: it has none, or is not asked for.
shared_scorer::pod_row* shared_scorer::row_of(const score_question& question, std::uint32_t pod, std::size_t first_row,
                                              std::size_t number) {
  if (const auto place = row_places_.find(pod); place != row_places_.end()) return &rows_[first_row + place->second];
  if (number != 1 || !is_wanted(question, pods_[pod])) return nullptr;
  row_places_.emplace(pod, rows_.size() - first_row);
  return &rows_.emplace_back(pod_row{.pod = pod});
}

bool shared_scorer::is_wanted(const score_question& question, std::string_view pod) const {
  if (sheet_->hidden.contains(pod)) return false;
  return question.pods.empty() || std::ranges::find(question.pods, pod) != question.pods.end();
}

// Of several sizes the best row of each pod, best first, then by name.
void shared_scorer::keep_best() {
  std::ranges::sort(rows_, [](const pod_row& one, const pod_row& other) {
    return std::tuple(one.pod, -one.score.score) < std::tuple(other.pod, -other.score.score);
  });
  const auto rest = std::ranges::unique(rows_, {}, &pod_row::pod);
  rows_.erase(rest.begin(), rest.end());
  for (pod_row& row : rows_) {
    if (row.score.score <= 0) continue;
    row.score.pod = pods_[row.pod];
    scores_.push_back(row.score);
  }
  std::ranges::sort(scores_, [](const pod_score& one, const pod_score& other) {
    return std::tuple(-one.score, one.pod) < std::tuple(-other.score, other.pod);
  });
}

void shared_scorer::lookup(std::span<const std::uint64_t> keys,
                           const std::function<void(std::span<const shared_holder>)>& visit) {
  refresh();
  for (; !keys.empty(); keys = keys.subspan(std::min(keys.size(), key_group))) {
    const auto some = keys.first(std::min(keys.size(), key_group));
    if (!ask(some)) return;
    for (std::size_t i = 0; i < some.size(); ++i) {
      holders_.clear();
      for (const known_field& each : replies_[i]) {
        if (!sheet_->hidden.contains(pods_[each.pod])) holders_.push_back({pods_[each.pod], each.medium});
      }
      if (holders_.empty()) return;
      visit(holders_);
    }
  }
}

std::string_view shared_scorer::medium_name(medium_number medium) const noexcept {
  return medium < media_.size() ? std::string_view(media_[medium]) : std::string_view();
}

bool shared_scorer::ask(std::span<const std::uint64_t> keys) {
  std::vector<std::string> commands;
  commands.reserve(keys.size());
  for (const std::uint64_t key : keys) commands.push_back(shared_commands::list_fields(key));
  if (replies_.size() < keys.size()) replies_.resize(keys.size());
  return run(commands,
             [&](std::size_t index, const redis::server_reply& reply) { read_fields(reply, replies_[index]); });
}

// A key of another type has no pods; any other refusal is the server's state.
bool shared_scorer::run(std::span<const std::string> commands, const redis::waiting_client::reply_receiver& receiver) {
  if (!is_answered_) return false;
  const auto now = redis::present_time();
  if (!counters_.is_serving || !breaker_.admits(now)) return is_answered_ = false;
  bool is_refused = false;
  const auto done = client_.run(commands, deadline_, [&](std::size_t index, const redis::server_reply& reply) {
    receiver(index, reply);
    const bool is_failure = reply.kind == redis::server_reply::type::failure;
    if (is_failure && reply.text.starts_with("WRONGTYPE")) ++counters_.strange_fields;
    if (is_failure && !reply.text.starts_with("WRONGTYPE")) is_refused = true;
  });
  is_answered_ = done.has_value() && !is_refused;
  breaker_.note(is_answered_, redis::present_time());
  if (!is_answered_) ++counters_.failed_questions;
  return is_answered_;
}

void shared_scorer::read_fields(const redis::server_reply& reply, field_list& fields) {
  fields.clear();
  for (const std::string_view text : reply.list) {
    if (const auto field = field_of(text)) fields.push_back(*field);
  }
}

/// Nothing: it is no entry of a pod, or in a tier beyond the bound of tiers.
std::optional<shared_scorer::known_field> shared_scorer::field_of(std::string_view text) {
  if (text.size() > 4 * most_entry_name) return std::nullopt;
  std::string name(text);
  if (const auto known = fields_.find(name); known != fields_.end()) return known->second;
  if (fields_.size() >= most_new_fields) return std::nullopt;
  std::optional<known_field> field;
  const auto entry = parse_field(text);
  const auto medium = entry ? medium_of(entry->tier) : std::nullopt;
  if (!entry) ++counters_.strange_fields;
  if (medium) {
    const auto [number, is_first] = pod_numbers_.try_emplace(entry->pod, static_cast<std::uint32_t>(pods_.size()));
    if (is_first) pods_.push_back(entry->pod);
    field = known_field{.pod = number->second, .medium = *medium};
  }
  fields_.emplace(std::move(name), field);
  return field;
}

std::optional<medium_number> shared_scorer::medium_of(std::string_view tier) {
  // llm-d writes engines' own names, several of them for one medium; media_ begins with the known ones, in their order.
  if (const auto known = medium_named(tier)) return static_cast<medium_number>(*known);
  const auto found = std::ranges::find(media_, tier);
  if (found != media_.end()) return static_cast<medium_number>(found - media_.begin());
  if (media_.size() == most_media) return std::nullopt;
  media_.emplace_back(tier);
  return static_cast<medium_number>(media_.size() - 1);
}

double shared_scorer::weight_of(medium_number medium) const {
  const auto found = sheet_->weights.find(media_[medium]);
  return found == sheet_->weights.end() ? 0 : found->second;
}

}  // namespace cenote::indexer
