#include "services/indexer/discovery/kubernetes_watch.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "config/logging.hpp"
#include "core/random_number.hpp"
#include "transport/http/query_text.hpp"

namespace cenote::indexer {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds list_limit = std::chrono::seconds(30);
// The server ends a watch after a minute; one that goes on for longer has lost its server.
constexpr std::string_view watch_seconds = "60";
constexpr milliseconds watch_limit = std::chrono::seconds(75);
constexpr milliseconds least_watch = std::chrono::seconds(1);  // between the begins of two
constexpr milliseconds first_pause = std::chrono::seconds(1), longest_pause = std::chrono::seconds(30);
constexpr std::size_t most_page_bytes = std::size_t{64} << 20;
constexpr std::size_t most_secret_bytes = std::size_t{64} << 10;

// Kubernetes replaces the token now and then: it is read for each question. Empty: it cannot be read.
std::string token_in(const std::string& account) {
  std::ifstream file(account + "/token", std::ios::binary);
  std::string token(most_secret_bytes, '\0');
  file.read(token.data(), static_cast<std::streamsize>(token.size()));
  token.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  const bool is_word = std::ranges::all_of(token, [](char each) { return each > ' ' && each < '\x7f'; });
  return is_word ? token : std::string();
}

// The server's own words, which are in a Status object.
std::string refusal_of(const http::service_answer& answer) {
  constexpr std::size_t longest = 512;
  const auto status = nlohmann::json::parse(answer.body, nullptr, false);
  std::string text = std::to_string(answer.status);
  if (!status.is_object()) return text;
  const auto message = status.find("message");
  if (message == status.end() || !message->is_string()) return text;
  return text + ": " + message->get<std::string>().substr(0, longest);
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

// The address that Kubernetes gives a pod's process.
result<std::string> cluster_server() {
  std::string host = variable("KUBERNETES_SERVICE_HOST");
  if (host.empty()) {
    return fail(error_code::invalid_argument,
                "this process does not run in a cluster (KUBERNETES_SERVICE_HOST is not set); name the API server in "
                "discovery.kubernetes.server");
  }
  if (host.contains(':')) host = "[" + host + "]";
  return "https://" + host + ":" + variable("KUBERNETES_SERVICE_PORT");
}

}  // namespace

result<std::unique_ptr<kubernetes_watch>> kubernetes_watch::start(kubernetes_options options) {
  const auto text = options.server.empty() ? cluster_server() : options.server;
  if (!text) return std::unexpected(text.error());
  auto server = config::parse_web_server(*text);
  if (!server) return std::unexpected(server.error());
  return std::unique_ptr<kubernetes_watch>(new kubernetes_watch(std::move(options), std::move(*server)));
}

kubernetes_watch::kubernetes_watch(kubernetes_options options, config::web_server server)
    : options_(std::move(options)),
      server_(std::move(server)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

std::optional<pod_addresses> kubernetes_watch::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(news_, std::nullopt);
}

bool kubernetes_watch::is_listed() const {
  const std::lock_guard lock(mutex_);
  return counters_.lists > 0;
}

discovery_counters kubernetes_watch::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void kubernetes_watch::run(const std::stop_token& stop) {
  milliseconds pause = first_pause;
  bool is_away = false;
  while (!stop.stop_requested()) {
    auto done = list(stop);
    if (done && std::exchange(is_away, false)) {
      log_info(logger("indexer"), "the API server of Kubernetes answers again", {});
    }
    if (done) pause = first_pause;
    while (done && !stop.stop_requested()) done = watch(stop);
    if (stop.stop_requested()) return;
    {
      const std::lock_guard lock(mutex_);
      ++counters_.failures;
    }
    if (!std::exchange(is_away, true)) {
      log_warn(logger("indexer"), "pods cannot be followed; those that are known stay",
               {{"server", server_.address.text()}, {"reason", done.error().message()}});
    }
    // Indexers that lost one server do not come back in one moment.
    wait(stop, pause / 2 + milliseconds(random_number() % static_cast<std::uint64_t>(pause.count() / 2 + 1)));
    pause = std::min(pause * 2, longest_pause);
  }
}

// Up to the first list that is whole.
result<void> kubernetes_watch::list(const std::stop_token& stop) {
  table_.begin_list();
  std::string next;
  do {
    std::string page;
    const std::string position = next.empty() ? "" : "&continue=" + http::encoded(next);
    auto asked = ask(target() + "&limit=500" + position, list_limit, stop, [&](std::string_view part) {
      page += part;
      return page.size() <= most_page_bytes;
    });
    if (!asked) return asked;
    auto added = table_.add_page(page);
    if (!added) return std::unexpected(added.error());
    next = std::move(*added);
  } while (!next.empty());
  publish(1);
  return {};
}

// One watch, to the end that the server gives it.
result<void> kubernetes_watch::watch(const std::stop_token& stop) {
  const auto begin = std::chrono::steady_clock::now();
  table_.begin_watch();
  result<void> read;
  bool is_expired = false;
  auto asked = ask(target() + "&watch=1&allowWatchBookmarks=true&timeoutSeconds=" + std::string(watch_seconds) +
                       "&resourceVersion=" + http::encoded(table_.version()),
                   watch_limit, stop, [&](std::string_view part) {
                     const auto added = table_.add_changes(part);
                     if (!added) read = std::unexpected(added.error());
                     if (!added) return false;
                     count_refused();
                     if (added->has_changes) publish(0);
                     is_expired = added->is_expired;
                     return !is_expired;
                   });
  if (!read) return read;
  if (!asked) return asked;
  const auto age = std::chrono::steady_clock::now() - begin;
  if (age < least_watch) wait(stop, std::chrono::duration_cast<milliseconds>(least_watch - age));
  return is_expired ? list(stop) : result<void>();
}

std::string kubernetes_watch::target() const {
  const std::string place = options_.place.empty() ? "" : "/namespaces/" + http::encoded(options_.place);
  return "/api/v1" + place + "/pods?labelSelector=" + http::encoded(options_.selector);
}

result<void> kubernetes_watch::ask(const std::string& target, milliseconds limit, const std::stop_token& stop,
                                   const http::part_visitor& visit) {
  http::service_address service{.address = server_.address};
  if (server_.has_tls) {
    service.ca = options_.account + "/ca.crt";
    service.token = token_in(options_.account);
  }
  const auto answer = http::follow_service(service, {.target = target}, limit, visit, stop);
  if (!answer) return std::unexpected(answer.error());
  if (answer->status != 200) return fail(error_code::system, "the API server refuses with " + refusal_of(*answer));
  return {};
}

void kubernetes_watch::publish(std::uint64_t lists) {
  const std::lock_guard lock(mutex_);
  counters_.lists += lists;
  counters_.pods = table_.pods().size();
  counters_.refused = table_.refused();
  news_ = table_.pods();
}

void kubernetes_watch::count_refused() {
  const std::lock_guard lock(mutex_);
  counters_.refused = table_.refused();
}

void kubernetes_watch::wait(const std::stop_token& stop, milliseconds time) {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, stop, time, [] { return false; });
}

}  // namespace cenote::indexer
