#include "services/manager/storages/plugin_storage.hpp"

#include <simdjson.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "config/logging.hpp"
#include "core/json_writer.hpp"
#include "core/text.hpp"

namespace cenote::manager {

namespace {

std::string subject_text(const plugin_subject& subject) {
  std::string text;
  json_writer writer(text);
  writer.begin_object();
  writer.name("type");
  writer.text(subject.type);
  writer.name("global_unique_name");
  writer.text(subject.name);
  writer.name("storage_spec");
  text += subject.spec.empty() ? "{}" : subject.spec;
  writer.end_object();
  return text;
}

error failure_of(std::string_view text) {
  const std::string_view begin = cut_text(text, plugin_storage::longest_reason);
  return {error_code::system, begin.empty() ? "the plug-in gives no reason" : std::string(begin)};
}

std::unexpected<error> refuse_answer(std::string_view reason) {
  return fail(error_code::malformed, "the plug-in's answer " + std::string(reason));
}

/// A result: true, false, or the text of a failure.
result<result<bool>> outcome_of(const simdjson::dom::element& element) {
  bool is_done = false;
  std::string_view text;
  if (element.get(is_done) == simdjson::SUCCESS) return result<bool>(is_done);
  if (element.get(text) == simdjson::SUCCESS) return result<bool>(std::unexpected(failure_of(text)));
  return refuse_answer("has a result that is neither true, false nor a text");
}

/// Of what has to be done: false is a failure.
result<> done(const result<bool>& outcome) {
  if (!outcome) return std::unexpected(outcome.error());
  return *outcome ? result<>() : std::unexpected(failure_of({}));
}

/// Room: an object with free_bytes and total_bytes; true: it has all room; or as a failure.
result<result<storage_room>> room_of(const simdjson::dom::element& element) {
  simdjson::dom::object object;
  if (element.get(object) != simdjson::SUCCESS) {
    const auto outcome = outcome_of(element);
    if (!outcome) return std::unexpected(outcome.error());
    const auto worked = done(*outcome);
    return worked ? result<storage_room>(storage_room{}) : result<storage_room>(std::unexpected(worked.error()));
  }
  storage_room room;
  if (object["free_bytes"].get(room.free_bytes) != simdjson::SUCCESS ||
      object["total_bytes"].get(room.total_bytes) != simdjson::SUCCESS) {
    return refuse_answer("has a room without free_bytes and total_bytes, both whole numbers");
  }
  return result<storage_room>(room);
}

/// A whole answer, which stays as long as this does.
class plugin_answer {
 public:
  /// Errors: malformed.
  [[nodiscard]] result<> read(std::string_view line, std::uint64_t id, std::size_t count) {
    simdjson::dom::object object;
    if (parser_.parse(line.data(), line.size()).get(object) != simdjson::SUCCESS) {
      return refuse_answer("is no object of JSON");
    }
    std::uint64_t answered = 0;
    if (object["id"].get(answered) != simdjson::SUCCESS || answered != id) return refuse_answer("has another id");
    if (std::string_view text; object["error"].get(text) == simdjson::SUCCESS) {
      failure_ = failure_of(text);
      return {};
    }
    if (object["results"].get(results_) != simdjson::SUCCESS) return refuse_answer("has no list `results`");
    if (results_.size() != count) {
      return refuse_answer("has " + std::to_string(results_.size()) + " results for " + std::to_string(count));
    }
    return {};
  }
  /// Of the operation as a whole; null: there are results.
  [[nodiscard]] const error* failure() const noexcept { return failure_ ? &*failure_ : nullptr; }
  [[nodiscard]] const simdjson::dom::array& results() const noexcept { return results_; }

 private:
  simdjson::dom::parser parser_;
  simdjson::dom::array results_;
  std::optional<error> failure_;
};

}  // namespace

plugin_storage::plugin_storage(const plugin_subject& subject, std::unique_ptr<plugin_launcher> launcher,
                               plugin_options options)
    : subject_(subject_text(subject)), launcher_(std::move(launcher)), options_(std::move(options)) {}

result<> plugin_storage::open() {
  if (channel_ != nullptr) return {};
  if (options_.clock() < next_start_) {
    return fail(error_code::not_running, "the plug-in is started again in a while; it failed: " + last_reason_);
  }
  options_.counters->starts.fetch_add(1, std::memory_order_relaxed);
  auto channel = launcher_->start();
  if (!channel) {
    note_failure(channel.error());
    return std::unexpected(channel.error());
  }
  channel_ = std::move(*channel);
  has_answered_ = false;
  return {};
}

void plugin_storage::note_failure(const error& reason) {
  channel_.reset();
  if (reason.code() == error_code::closed) return;
  options_.counters->failures.fetch_add(1, std::memory_order_relaxed);
  log_warn(logger("manager"), "a plug-in is ended", {{"storage", subject_}, {"reason", reason.message()}});
  last_reason_ = reason.message();
  next_start_ = options_.clock() + pause_;
  pause_ = std::min(2 * pause_, longest_pause);
}

void plugin_storage::note_success() noexcept {
  has_answered_ = true;
  pause_ = first_pause;
}

result<std::string> plugin_storage::ask(std::string_view operation, std::span<const removal_item> items) {
  if (auto opened = open(); !opened) return std::unexpected(opened.error());
  std::string line = R"({"id":)" + std::to_string(++last_id_) + R"(,"op":")";
  line.append(operation).append(R"(","storage":)").append(subject_).append(R"(,"uris":)");
  json_writer uris(line);
  uris.begin_list();
  for (const removal_item& item : items) uris.text(item.place);
  uris.end_list();
  line += "}\n";
  const auto limit = has_answered_ ? options_.timeout : std::max(options_.timeout, start_limit);
  auto answer = channel_->ask(line, options_.clock() + limit);
  if (!answer) note_failure(answer.error());
  return answer;
}

result<> plugin_storage::remove(const removal_item& item) {
  return remove_together({&item, 1}).front();
}

std::vector<result<bool>> plugin_storage::ask_each(std::string_view operation, std::span<const removal_item> items) {
  const auto fail_all = [&](const error& reason) {
    return std::vector<result<bool>>(items.size(), std::unexpected(reason));
  };
  const auto line = ask(operation, items);
  if (!line) return fail_all(line.error());
  plugin_answer answer;
  std::vector<result<bool>> outcomes;
  result<> read = answer.read(*line, last_id_, items.size());
  if (read && answer.failure() == nullptr) {
    for (const simdjson::dom::element each : answer.results()) {
      auto outcome = outcome_of(each);
      if (!outcome) {
        read = std::unexpected(outcome.error());
        break;
      }
      outcomes.push_back(std::move(*outcome));
    }
  }
  if (!read) {
    note_failure(read.error());
    return fail_all(read.error());
  }
  note_success();
  return answer.failure() == nullptr ? outcomes : fail_all(*answer.failure());
}

std::vector<result<>> plugin_storage::remove_together(std::span<const removal_item> items) {
  std::vector<result<>> outcomes;
  for (const auto& outcome : ask_each("remove", items)) outcomes.push_back(done(outcome));
  return outcomes;
}

std::vector<result<bool>> plugin_storage::exist_together(std::span<const removal_item> items) {
  return ask_each("exist", items);
}

result<storage_room> plugin_storage::probe() {
  const auto line = ask("probe", {});
  if (!line) return std::unexpected(line.error());
  plugin_answer answer;
  if (auto read = answer.read(*line, last_id_, 1); !read) {
    note_failure(read.error());
    return std::unexpected(read.error());
  }
  if (answer.failure() != nullptr) {
    note_success();
    return std::unexpected(*answer.failure());
  }
  auto room = room_of(answer.results().at(0));
  if (!room) {
    note_failure(room.error());
    return std::unexpected(room.error());
  }
  note_success();
  return std::move(*room);
}

}  // namespace cenote::manager
