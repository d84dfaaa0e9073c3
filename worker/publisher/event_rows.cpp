#include "worker/publisher/event_rows.hpp"

#include <algorithm>

namespace cenote::publishing {

namespace {

constexpr std::size_t index_of(event_medium medium) noexcept {
  return static_cast<std::size_t>(medium);
}

}  // namespace

bool event_rows::take(event_medium medium, const change_run& run) {
  if (run.begins_anew) begin_anew(medium);
  for (const change_subject& each : run.subjects) add_subject(medium, each);
  for (const tier_change& each : run.changes) {
    const auto found = subjects_[index_of(medium)].find(each.instance);
    if (found == subjects_[index_of(medium)].end()) continue;
    row_subject& of = found->second;
    switch (each.kind) {
      case tier_change_kind::stored:
        ++of.blocks;
        of.row->waiting.add(each.kind, medium, group_of(of, each), each.key);
        break;
      case tier_change_kind::removed:
        --of.blocks;
        of.row->waiting.add(each.kind, medium, group_of(of, each), each.key);
        break;
      case tier_change_kind::cleared:
      case tier_change_kind::ended:
        if (of.blocks != 0) {
          if (!is_alone(medium, each.instance)) return false;
          of.row->waiting.clear(medium);
          of.blocks = 0;
        }
        if (each.kind == tier_change_kind::ended) drop_subject(medium, each.instance);
        break;
    }
  }
  return true;
}

/// The first run of a reader follows nothing, or makes void all that came before.
void event_rows::begin_anew(event_medium medium) {
  subjects& all = subjects_[index_of(medium)];
  for (const auto& [model, each] : rows_) {
    const bool has_blocks =
        std::ranges::any_of(all, [&](const auto& of) { return of.second.row == each.get() && of.second.blocks != 0; });
    if (has_blocks) each->waiting.clear(medium);
  }
  for (const auto& [instance, of] : all) --of.row->instances;
  all.clear();
}

void event_rows::add_subject(event_medium medium, const change_subject& named) {
  if (rows_.size() > most_idle_topics && !rows_.contains(named.model)) drop_idle_rows();
  auto& row = rows_[named.model];
  if (!row) {
    row = std::make_unique<topic_row>();
    row->topic = std::make_shared<const std::string>("kv@node:" + name_ + "@" + named.model);
  }
  if (!subjects_[index_of(medium)].emplace(named.instance, row_subject{row.get(), named.groups > 1}).second) return;
  ++row->instances;
}

void event_rows::drop_subject(event_medium medium, std::uint32_t instance) {
  const auto gone = subjects_[index_of(medium)].extract(instance);
  if (!gone.empty()) --gone.mapped().row->instances;
}

/// Nothing is there of them. Should one come back, its row begins at 0, as that of a publisher that began anew.
void event_rows::drop_idle_rows() {
  std::erase_if(rows_, [&](const auto& named_row) {
    const topic_row& of = *named_row.second;
    const bool is_idle = of.instances == 0 && of.waiting.is_empty();
    if (is_idle) ring_.forget(of.topic);
    return is_idle;
  });
}

const event_rows::row_subject* event_rows::find(event_medium medium, std::uint32_t instance) const {
  const auto found = subjects_[index_of(medium)].find(instance);
  return found == subjects_[index_of(medium)].end() ? nullptr : &found->second;
}

/// Of no other instance in its row there are blocks in the medium: what clears it clears the medium.
bool event_rows::is_alone(event_medium medium, std::uint32_t instance) const {
  const row_subject* const of = find(medium, instance);
  return std::ranges::none_of(subjects_[index_of(medium)], [&](const auto& named_row) {
    return named_row.first != instance && named_row.second.row == of->row && named_row.second.blocks != 0;
  });
}

std::optional<std::uint32_t> event_rows::group_of(const row_subject& subject, const tier_change& change) {
  return subject.has_groups ? std::optional(change.group) : std::nullopt;
}

std::vector<numbered_batch> event_rows::flush(double timestamp) {
  std::vector<numbered_batch> batches;
  for (const auto& [model, each] : rows_) {
    if (each->waiting.is_empty()) continue;
    for (std::string& payload : each->waiting.take(timestamp)) {
      batches.push_back({each->topic, each->next++, std::make_shared<const std::string>(std::move(payload))});
      ring_.add(batches.back());
    }
  }
  return batches;
}

bool event_rows::translate(event_medium medium, const std::vector<tier_change>& changes,
                           std::map<shared_text, event_batcher>& batchers) const {
  for (const tier_change& each : changes) {
    const row_subject* const of = find(medium, each.instance);
    if (of == nullptr) continue;
    if (each.kind == tier_change_kind::stored || each.kind == tier_change_kind::removed) {
      batchers[of->row->topic].add(each.kind, medium, group_of(*of, each), each.key);
    } else if (is_alone(medium, each.instance)) {
      batchers[of->row->topic].clear(medium);
    } else {
      return false;
    }
  }
  return true;
}

std::vector<std::pair<shared_text, std::uint64_t>> event_rows::rows() const {
  std::vector<std::pair<shared_text, std::uint64_t>> all;
  all.reserve(rows_.size());
  for (const auto& [model, each] : rows_) all.emplace_back(each->topic, each->next);
  return all;
}

}  // namespace cenote::publishing
