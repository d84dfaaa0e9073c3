#include "commands/services/indexer_client.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "commands/common.hpp"
#include "commands/interruption.hpp"
#include "commands/table.hpp"
#include "config/cluster_rules.hpp"
#include "core/text.hpp"
#include "transport/http/query_text.hpp"
#include "transport/http/request_client.hpp"

namespace cenote {

namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr auto answer_limit = 30s;
constexpr auto watch_pause = 1s;

struct service_options {
  std::string address = "127.0.0.1:8790";
  std::string token_file;
  http::service_address service;
  bool is_json = false;

  void add_to(CLI::App& command) {
    command.add_option("--address", address, "HOST:PORT of the indexer")->capture_default_str();
    command.add_option("--socket", service.socket, "Its Unix socket, in place of the address");
    command.add_option("--token-file", token_file, "File with its bearer token");
    command.add_option("--ca", service.ca, "Authorities of its certificate, in PEM: TLS");
    command.add_option("--cert", service.certificate, "Certificate of this client, in PEM");
    command.add_option("--key", service.key, "Its private key");
    command.add_flag("--json", is_json, "The answer as it comes");
  }
};

result<http::service_address> address_of(const service_options& options) {
  http::service_address service = options.service;
  const auto address = parse_endpoint(options.address);
  if (!address) return std::unexpected(address.error());
  service.address = *address;
  if (options.token_file.empty()) return service;
  const auto token = config::read_secret(options.token_file);
  if (!token) return std::unexpected(token.error());
  service.token.assign(reinterpret_cast<const char*>(token->data()), token->size());
  return service;
}

/// The body of an answer of success; other ones are errors with the service's own text.
result<std::string> body_of(const service_options& options, const http::service_request& request) {
  const auto service = address_of(options);
  if (!service) return std::unexpected(service.error());
  auto answer = http::ask_service(*service, request, answer_limit);
  if (!answer) return std::unexpected(answer.error());
  if (answer->status == 200) return std::move(answer->body);
  const json parsed = json::parse(answer->body, nullptr, false);
  const std::string text = parsed.is_object() ? text_of(parsed, "error") : std::string();
  return fail(error_code::invalid_argument,
              fmt::format("the indexer answers {}{}{}", answer->status, text.empty() ? "" : ": ", text));
}

std::string counts_of(const json& tiers) {
  std::string text;
  if (!tiers.is_object()) return "-";
  for (const auto& [name, count] : tiers.items()) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", printable(name), to_count(count));
  }
  return text.empty() ? "-" : text;
}

std::string pods_page(const json& answer) {
  table pods({"pod", ">rank", "model", "state", ">last batch", "blocks", ">gaps", ">replayed", ">behind", "publisher"});
  for (const json& each : member(answer, "pods")) {
    pods.add({text_of(each, "pod"), text_of(each, "dp_rank"), text_of(each, "model"), text_of(each, "state"),
              text_of(each, "last_seq"), counts_of(member(each, "blocks")), text_of(each, "gaps"),
              text_of(each, "replayed"), fmt::format("{:.1f} s", number_of(each, "behind_s")),
              text_of(each, "publisher")});
  }
  return pods.empty() ? "  no publisher is known\n" : pods.text();
}

std::string scores_page(const json& answer) {
  table scores({"pod", ">score", ">blocks", ">tokens", ">rank", "tiers"});
  for (const json& each : member(answer, "scores")) {
    scores.add({text_of(each, "pod"), fmt::format("{:.2f}", number_of(each, "score")), text_of(each, "blocks"),
                text_of(each, "tokens"), text_of(each, "dp_rank"), counts_of(member(each, "tiers"))});
  }
  std::string page = scores.empty() ? "  no pod has the beginning of this prompt\n" : scores.text();
  for (const json& each : member(answer, "degraded")) {
    page += fmt::format("  degraded: {} may have more; events of it are lost\n",
                        each.is_string() ? printable(each.get<std::string>()) : "?");
  }
  return page;
}

/// Prints an answer, as it is or as a page.
result<void> print_answer(const service_options& options, const http::service_request& request,
                          std::string (*page_of)(const json&)) {
  const auto body = body_of(options, request);
  if (!body) return std::unexpected(body.error());
  if (options.is_json) {
    fmt::print("{}\n", *body);
    return {};
  }
  const json parsed = json::parse(*body, nullptr, false);
  if (!parsed.is_object()) return fail(error_code::malformed, "the indexer's answer is no JSON object");
  fmt::print("{}", page_of(parsed));
  return {};
}

exit_code show_pods(const service_options& options, bool is_watching) {
  if (is_watching) watch_for_interruption();
  for (;;) {
    if (is_watching && !options.is_json) clear_screen();
    if (auto printed = print_answer(options, {.target = "/v1/pods"}, pods_page); !printed) {
      return failed_with(printed.error());
    }
    std::fflush(stdout);
    if (!is_watching || interrupted()) return exit_code::orderly;
    std::this_thread::sleep_for(watch_pause);
    if (interrupted()) return exit_code::orderly;
  }
}

exit_code show_scores(const service_options& options, const std::string& path) {
  std::ifstream file;
  if (path != "-") file.open(path, std::ios::binary);
  if (path != "-" && !file) {
    return failed_with({error_code::invalid_argument, "cannot read " + path + ", a question as in POST /v1/scores"});
  }
  std::istream& source = path == "-" ? std::cin : file;
  const std::string question{std::istreambuf_iterator<char>(source), {}};
  const auto printed = print_answer(options, {.method = "POST", .target = "/v1/scores", .body = question}, scores_page);
  return printed ? exit_code::orderly : failed_with(printed.error());
}

exit_code show_dump(const service_options& options, const std::string& pod) {
  const std::string target = "/v1/dump?pod=" + http::encoded(pod);
  const auto body = body_of(options, {.target = target});
  if (!body) return failed_with(body.error());
  std::fwrite(body->data(), 1, body->size(), stdout);
  return exit_code::orderly;
}

}  // namespace

void add_indexer_client(CLI::App& indexer) {
  auto* pods = indexer.add_subcommand("pods", "Pods, their publishers, and how far their events are applied");
  auto pods_options = std::make_shared<service_options>();
  auto is_watching = std::make_shared<bool>(false);
  pods_options->add_to(*pods);
  pods->add_flag("--watch", *is_watching, "Again each second, until Ctrl-C");
  pods->callback([pods_options, is_watching] { end_with(show_pods(*pods_options, *is_watching)); });

  auto* score = indexer.add_subcommand("score", "Scores of a question as in POST /v1/scores");
  auto score_options = std::make_shared<service_options>();
  auto path = std::make_shared<std::string>();
  score_options->add_to(*score);
  score->add_option("file", *path, "JSON file, - for standard input")->required();
  score->callback([score_options, path] { end_with(show_scores(*score_options, *path)); });

  auto* dump = indexer.add_subcommand("dump", "All blocks of a pod, as lines of JSON that rebuild it");
  auto dump_options = std::make_shared<service_options>();
  auto pod = std::make_shared<std::string>();
  dump_options->add_to(*dump);
  dump->add_option("pod", *pod)->required();
  dump->callback([dump_options, pod] { end_with(show_dump(*dump_options, *pod)); });
}

}  // namespace cenote
