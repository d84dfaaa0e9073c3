#include "services/indexer/service/service_calls.hpp"

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <string>
#include <utility>

namespace cenote::indexer {

namespace {

constexpr std::chrono::seconds deed_limit{1};
constexpr std::size_t most_dumped = std::size_t{1} << 26;  // blocks

/// Blocks of a pod as the writer has copied them.
struct copied_blocks {
  std::uint16_t dp_rank = 0;
  medium_number medium = 0;
  std::string model;
  std::uint32_t block_tokens = 0;
  std::optional<std::uint64_t> parent_key;
  std::vector<std::uint64_t> keys, hashes;
};

struct dump_place_end {
  void operator()(dump_places* places) const noexcept { places->release(); }
};
using dump_place = std::unique_ptr<dump_places, dump_place_end>;

class copied_dump final : public pod_dump {
 public:
  copied_dump(std::future<std::vector<copied_blocks>> parts, dump_place place)
      : answer_(std::move(parts)), place_(std::move(place)) {}

  bool next(const dump_visitor& visit) override {
    if (answer_.valid()) {
      if (answer_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return true;
      parts_ = answer_.get();
    }
    constexpr std::size_t some_blocks = 1024;
    for (std::size_t blocks = 0; next_ < parts_.size() && blocks < some_blocks;) {
      copied_blocks& part = parts_[next_++];
      visit({.dp_rank = part.dp_rank,
             .medium = part.medium,
             .model = part.model,
             .block_tokens = part.block_tokens,
             .parent_key = part.parent_key,
             .keys = part.keys,
             .hashes = part.hashes});
      blocks += part.keys.size();
      part = {};
    }
    return next_ < parts_.size();
  }

 private:
  std::future<std::vector<copied_blocks>> answer_;  ///< from the writer
  std::vector<copied_blocks> parts_;
  std::size_t next_ = 0;
  dump_place place_;
};

/// The writer's: copies what a pod has.
std::vector<copied_blocks> copy_blocks(forest& index, const placer& publishers, std::string_view pod) {
  std::vector<copied_blocks> parts;
  std::size_t count = 0;
  publishers.visit_holders(pod, [&](model_number model, std::uint16_t rank, holder_kind kind, holder number) {
    if (slot_of(kind) != 0) return;
    const model_facts& facts = index.models().facts(model);
    const std::string name(index.models().name(model));
    const std::uint32_t tokens = facts.size_count == 1 ? facts.sizes[0] : 0;
    index.dump(number, [&](const held_blocks& blocks) {
      if (count >= most_dumped) return;
      count += blocks.keys.size();
      parts.push_back({.dp_rank = rank,
                       .medium = medium_of(kind),
                       .model = name,
                       .block_tokens = tokens,
                       .parent_key = blocks.parent,
                       .keys = {blocks.keys.begin(), blocks.keys.end()},
                       .hashes = {blocks.hashes.begin(), blocks.hashes.end()}});
    });
  });
  return parts;
}

/// Publishers of each pod and model.
using publisher_index = std::multimap<std::pair<std::string_view, std::string_view>, const publisher_row*>;

}  // namespace

result<std::unique_ptr<service_calls>> service_calls::make(const service_parts& parts, const memory_parts& memory) {
  auto questions = scorer::open(memory.index, memory.processor);
  if (!questions) return fail(error_code::limit_exceeded, "the index has as many readers as there may be");
  const auto counts = open_counts(parts);
  if (!counts) return std::unexpected(counts.error());
  return std::unique_ptr<service_calls>(new service_calls(parts, memory, std::move(*questions), **counts));
}

result<void> service_calls::check_lists(const score_question& question) {
  if (const std::uint64_t version = memory_.weights.version(); version != weights_version_) {
    questions_.set_weights(memory_.weights.get());
    weights_version_ = version;
  }
  return questions_.check_lists(question);
}

result<score_answer> service_calls::score(const score_question& question) {
  if (auto checked = check_lists(question); !checked) return std::unexpected(checked.error());
  return counted_score(questions_, question);
}

result<block_keys_answer> service_calls::keys(const score_question& question) {
  if (auto checked = check_lists(question); !checked) return std::unexpected(checked.error());
  const auto facts = questions_.reader().model(question.model);
  if (!facts || facts->size_count == 0) return block_keys_answer{};
  return block_keys_answer{questions_.keys_of(question), facts->sizes[0]};
}

result<void> service_calls::lookup(std::span<const std::uint64_t> keys, const holder_visitor& visit) {
  return questions_.lookup(keys, visit);
}

std::string_view service_calls::medium_name(medium_number medium) const {
  return questions_.reader().medium_name(medium);
}

result<void> service_calls::pods(const pod_visitor& visit) {
  const auto table = parts().events.publishers();
  publisher_index publishers;
  for (const publisher_row& row : table->rows) {
    if (row.is_open) {
      publishers.emplace(std::pair(std::string_view(row.identity.pod), std::string_view(row.identity.model)), &row);
    } else {
      visit(status_of(row));
    }
  }
  questions_.reader().visit_pods([&](const pod_rank& member, std::string_view model, const auto& blocks) {
    const auto [begin, end] = publishers.equal_range({member.pod(), model});
    if (begin == end) return;
    const auto is_own = [&](const auto& entry) { return entry.second->identity.rank == member.rank; };
    const auto own = std::find_if(begin, end, is_own);
    pod_status status = status_of(*(own == end ? begin : own)->second);
    status.dp_rank = member.rank;
    status.blocks = blocks;
    visit(status);
  });
  return {};
}

bool service_calls::has_pod(std::string_view pod) {
  return questions_.reader().has_pod(pod);
}

result<std::unique_ptr<pod_dump>> service_calls::dump(std::string_view pod) {
  if (!has_pod(pod)) return nullptr;
  if (!memory_.dumps.try_acquire())
    return fail(error_code::limit_exceeded, "other dumps are being sent; try again later");
  dump_place place(&memory_.dumps);
  auto answer = std::make_shared<std::promise<std::vector<copied_blocks>>>();
  auto copied = answer->get_future();
  auto posted = memory_.writer.post(
      [answer, name = std::string(pod)](forest& index, placer& publishers) {
        try {
          answer->set_value(copy_blocks(index, publishers, name));
        } catch (...) {
          answer->set_exception(std::current_exception());
        }
      },
      pod.size());
  if (!posted) return std::unexpected(posted.error());
  parts().events.wake();
  return std::make_unique<copied_dump>(std::move(copied), std::move(place));
}

result<bool> service_calls::clear(std::string_view pod, std::string_view medium) {
  if (!has_pod(pod)) return false;
  if (!questions_.reader().has_medium(medium)) {
    return fail(error_code::invalid_argument, "no pod has blocks in `" + std::string(medium) + "`");
  }
  auto done = carry_out([name = std::string(pod), cleared = std::string(medium)](
                            forest&, placer& publishers) { (void)publishers.clear(name, cleared); },
                        pod.size() + medium.size());
  if (!done) return std::unexpected(done.error());
  return true;
}

result<void> service_calls::carry_out(indexer_writer::writer_task action, std::size_t bytes) {
  auto done = std::make_shared<std::promise<void>>();
  auto end = done->get_future();
  auto posted = memory_.writer.post(
      [done, work = std::move(action)](forest& index, placer& publishers) {
        work(index, publishers);
        done->set_value();
      },
      bytes);
  if (!posted) return posted;
  parts().events.wake();
  (void)end.wait_for(deed_limit);
  return {};
}

result<std::uint32_t> service_calls::speculate(const speculation& sent) {
  if (auto checked = check_lists(sent.question); !checked) return std::unexpected(checked.error());
  const auto own = sent.question.tokens.empty() ? sent.question.block_keys : questions_.keys_of(sent.question);
  if (own.empty()) return 0;
  const auto ttl = sent.ttl.value_or(std::chrono::hours(24));  // at most the configured one
  std::vector<std::string> pods;
  for (const std::string_view pod : sent.question.pods) {
    if (has_pod(pod)) pods.emplace_back(pod);
  }
  if (pods.empty()) return 0;
  const std::size_t bytes = own.size_bytes() + pods.size() * holder_table::most_name;
  auto posted = memory_.writer.post(
      [keys = std::vector(own.begin(), own.end()), model = std::string(sent.question.model), pods = std::move(pods),
       ttl](forest&, placer& publishers) {
        for (const std::string& pod : pods) {
          (void)publishers.expect(pod, model, keys, std::chrono::steady_clock::now(), ttl);
        }
      },
      bytes);
  if (!posted) return std::unexpected(posted.error());
  parts().events.wake();
  return static_cast<std::uint32_t>(own.size());
}

result<bool> service_calls::remove_publisher(std::string_view name) {
  auto removed = common_calls::remove_publisher(name);
  if (!removed || !*removed) return removed;
  // A task may be of a round that had begun before; the next round closes the publisher before its tasks.
  for (int rounds = 0; rounds < 2; ++rounds) {
    if (auto done = carry_out([](forest&, placer&) {}, 0); !done) return std::unexpected(done.error());
  }
  return true;
}

void service_calls::write_metrics(std::string& out) {
  metrics_page page(parts().names);
  page.add_index(memory_.writer.figures(), *parts().events.publishers());
  questions_.reader().visit_pods([&](const pod_rank& member, std::string_view model, const auto& blocks) {
    for (medium_number medium = 0; medium < most_media; ++medium) {
      if (blocks[medium] > 0) page.add_blocks(member, model, medium_name(medium), blocks[medium]);
    }
  });
  add_metrics(page);
  out += page.text();
}

}  // namespace cenote::indexer
