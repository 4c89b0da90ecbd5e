#include "bench/arguments.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

namespace weft::bench {

Argument Argument::positive() const {
  option_->check(CLI::PositiveNumber);
  return *this;
}

Argument Argument::not_negative() const {
  option_->check(CLI::NonNegativeNumber);
  return *this;
}

Argument Argument::within(int lowest, int highest) const {
  option_->check(CLI::Range(lowest, highest));
  return *this;
}

Argument Argument::within(double lowest, double highest) const {
  option_->check(CLI::Range(lowest, highest));
  return *this;
}

Argument Argument::one_of(std::initializer_list<int> numbers) const {
  option_->check(CLI::IsMember(numbers));
  return *this;
}

Argument Argument::one_of(const std::vector<std::string>& words) const {
  option_->check(CLI::IsMember(words));
  return *this;
}

Argument Argument::required() const {
  option_->required();
  return *this;
}

Argument Argument::excludes(const Argument& other) const {
  option_->excludes(other.option_);
  return *this;
}

Argument Argument::separated_by(char delimiter) const {
  option_->delimiter(delimiter);
  return *this;
}

Argument Argument::one_at_a_time() const {
  option_->type_size(1)->allow_extra_args(false);
  return *this;
}

Arguments::Arguments(const std::string& description)
    : app_(std::make_unique<CLI::App>(description)) {
}

Arguments::~Arguments() = default;

Argument Arguments::add(const std::string& name, int& value, const std::string& meaning) {
  return Argument(*app_->add_option(name, value, meaning));
}

Argument Arguments::add(const std::string& name, std::int64_t& value, const std::string& meaning) {
  return Argument(*app_->add_option(name, value, meaning));
}

Argument Arguments::add(const std::string& name, std::uint32_t& value, const std::string& meaning) {
  return Argument(*app_->add_option(name, value, meaning));
}

Argument Arguments::add(const std::string& name, double& value, const std::string& meaning) {
  return Argument(*app_->add_option(name, value, meaning));
}

Argument Arguments::add(const std::string& name, std::string& value, const std::string& meaning) {
  return Argument(*app_->add_option(name, value, meaning));
}

Argument Arguments::add(const std::string& name,
                        std::vector<int>& values,
                        const std::string& meaning) {
  return Argument(*app_->add_option(name, values, meaning));
}

Argument Arguments::add(const std::string& name,
                        std::vector<std::int64_t>& values,
                        const std::string& meaning) {
  return Argument(*app_->add_option(name, values, meaning));
}

Argument Arguments::add(const std::string& name,
                        std::vector<double>& values,
                        const std::string& meaning) {
  return Argument(*app_->add_option(name, values, meaning));
}

Argument Arguments::add(const std::string& name,
                        std::vector<std::string>& values,
                        const std::string& meaning) {
  return Argument(*app_->add_option(name, values, meaning));
}

Argument Arguments::add_flag(const std::string& name, bool& flag, const std::string& meaning) {
  return Argument(*app_->add_flag(name, flag, meaning));
}

std::optional<int> Arguments::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // also where --help is given
    return app_->exit(error);
  }
  return std::nullopt;
}

}  // namespace weft::bench
