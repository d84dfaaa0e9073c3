// Messages of the indexer's calls over gRPC, as its threads read them.
#include <array>
#include <cstdlib>
#include <string>

#include "services/indexer/grpc/question_message.hpp"
#include "services/indexer/http/body_reader.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace cenote::indexer;
using cenote::fuzz::bytes_view;

template <class Message>
[[nodiscard]] bool parse(bytes_view input, Message& message) {
  return message.ParseFromArray(input.data(), static_cast<int>(input.size()));
}

/// All views of a question, which the address sanitizer watches, and its bounds.
void use(const score_question& question) {
  std::size_t sum = question.model.size() + question.lora_name.size();
  if (question.model.empty() || question.model.size() > body_reader::longest_name) std::abort();
  if (question.tokens.size() > body_reader::most_tokens || question.pods.size() > body_reader::most_pods) std::abort();
  for (const auto each : question.tokens) sum += each;
  for (const auto each : question.pods) {
    if (each.empty() || each.size() > body_reader::longest_name) std::abort();
    sum += static_cast<unsigned char>(each.back());
  }
  for (std::size_t block = 0; block < question.extra_keys.blocks.size(); ++block) {
    const auto list = question.extra_keys.list(block);
    if (item_size(list) != list.size()) std::abort();
  }
  static volatile std::size_t result;
  result = sum;
}

call_place& shared_place() {
  static call_place place;
  return place;
}

template <class Message>
void read_question(bytes_view input) {
  Message message;
  if (!parse(input, message)) return;
  if (const auto question = question_of(message, shared_place())) use(*question);
}

void read_lookup(bytes_view input) {
  messages::LookupRequest message;
  if (parse(input, message)) static_cast<void>(check_keys(message));
}

constexpr std::array<cenote::fuzz::codec, 3> codecs{read_question<messages::ScoreTokensRequest>,
                                                    read_question<messages::GetPodScoresRequest>, read_lookup};

void write_message_seed(std::size_t codec, const google::protobuf::Message& message) {
  const std::string text = message.SerializeAsString();
  cenote::fuzz::write_seed(codec, std::as_bytes(std::span(text)));
}

void write_seeds() {
  messages::ScoreTokensRequest tokens;
  tokens.set_model_name("m");
  for (const unsigned each : {1U, 300U, 0xffff'ffffU}) tokens.add_token_ids(each);
  tokens.add_pod_identifiers("a");
  tokens.set_lora_name("l");
  tokens.set_cache_salt("s");
  write_message_seed(0, tokens);
  messages::GetPodScoresRequest prompt;
  prompt.set_model_name("m");
  prompt.set_prompt("a text");
  prompt.add_pod_identifiers("a");
  write_message_seed(1, prompt);
  messages::LookupRequest keys;
  keys.add_block_keys(1);
  keys.add_block_keys(0xffff'ffff'ffff'ffff);
  write_message_seed(2, keys);
}

}  // namespace

cenote::fuzz::target cenote::fuzz::make_target() {
  return {.codecs = ::codecs, .write_seeds = ::write_seeds};
}
