//! The operators, each with the members of its own that it needs at run time.

use std::collections::BTreeMap;

use longhaul_protocol::conductor::{NumberOrText, WorkflowTask};
use serde_json::Value;

use super::tree::ListId;
use crate::conductor::expression::Template;
use crate::conductor::script_result::Evaluator;

/// What a node does.
#[derive(Clone, Debug)]
pub enum Operator {
    /// A task for workers that poll its name.
    Simple,
    /// A task whose name an input member gives.
    Dynamic {
        /// The input member.
        name_param: String,
    },
    /// A task for workers that poll its type.
    UserDefined,
    Switch(Switch),
    /// The older form of SWITCH.
    Decision {
        /// The input member with the case, if there is no script.
        case_value_param: Option<String>,
        /// The script that returns the case.
        case_expression: Option<String>,
        cases: BTreeMap<String, ListId>,
        default: ListId,
    },
    ForkJoin {
        branches: Vec<ListId>,
    },
    ForkJoinDynamic(DynamicFork),
    Join {
        join_on: Vec<String>,
    },
    ExclusiveJoin {
        join_on: Vec<String>,
        default: Vec<String>,
    },
    DoWhile(Loop),
    SubWorkflow(Box<SubWorkflow>),
    /// Starts a run of code and waits for its end.
    DurableWorkflow,
    StartWorkflow,
    Terminate,
    SetVariable,
    Wait,
    Human,
    Yield,
    Noop,
    Inline,
    Lambda,
    JsonJqTransform,
    Http,
    Event {
        sink: Template,
    },
    PullWorkflowMessages,
}

/// Selects one branch by the result of an expression.
#[derive(Clone, Debug)]
pub struct Switch {
    pub evaluator: Evaluator,
    pub expression: String,
    pub cases: BTreeMap<String, ListId>,
    pub default: ListId,
}

/// The input members from which a dynamic fork takes its branches. A list of inputs in `forkTaskInputs` comes before all of them.
#[derive(Clone, Debug)]
pub struct DynamicFork {
    /// The member with the nodes.
    pub tasks_param: Option<String>,
    /// The member with the inputs of the nodes by reference.
    pub inputs_param: Option<String>,
    /// The member with nodes and inputs in the older form.
    pub legacy_param: Option<String>,
}

/// Repeats its body.
#[derive(Clone, Debug)]
pub struct Loop {
    /// The script that decides about another iteration. Blank is absent.
    pub condition: Option<String>,
    /// The list to iterate over, if the loop has one.
    pub items: Option<Template>,
    pub body: ListId,
}

/// Starts another workflow and waits for its end.
#[derive(Clone, Debug)]
pub struct SubWorkflow {
    pub name: Template,
    pub version: SubWorkflowVersion,
    /// A definition that is used as it is.
    pub definition: Option<Value>,
    /// An expression for the definition.
    pub definition_template: Option<Template>,
    pub task_to_domain: Option<Template>,
    pub priority: Option<Template>,
    pub idempotency_key: Option<Template>,
    pub idempotency_strategy: Option<Template>,
}

/// Which version of the workflow is started.
#[derive(Clone, Debug)]
pub enum SubWorkflowVersion {
    Latest,
    Fixed(i32),
    Expression(Template),
}

/// The lists inside a node, in the tree.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    pub(super) cases: BTreeMap<String, ListId>,
    pub(super) default: ListId,
    pub(super) branches: Vec<ListId>,
    pub(super) body: ListId,
}

impl Operator {
    pub(super) fn of(node: &WorkflowTask, lists: Lists) -> Self {
        match node.task_type.as_str() {
            "SIMPLE" => Self::Simple,
            "DYNAMIC" => Self::Dynamic {
                name_param: node.dynamic_task_name_param.clone().unwrap_or_default(),
            },
            "SWITCH" => Self::Switch(Switch {
                evaluator: Evaluator::of(node.evaluator_type.as_deref().unwrap_or_default()),
                expression: node.expression.clone().unwrap_or_default(),
                cases: lists.cases,
                default: lists.default,
            }),
            "DECISION" => Self::Decision {
                case_value_param: node.case_value_param.clone(),
                case_expression: node.case_expression.clone().filter(|text| !is_blank(text)),
                cases: lists.cases,
                default: lists.default,
            },
            "FORK_JOIN" => Self::ForkJoin {
                branches: lists.branches,
            },
            "FORK_JOIN_DYNAMIC" => Self::ForkJoinDynamic(DynamicFork {
                tasks_param: node.dynamic_fork_tasks_param.clone(),
                inputs_param: node.dynamic_fork_tasks_input_param_name.clone(),
                legacy_param: node.dynamic_fork_join_tasks_param.clone(),
            }),
            "JOIN" => Self::Join {
                join_on: node.join_on.clone(),
            },
            "EXCLUSIVE_JOIN" => Self::ExclusiveJoin {
                join_on: node.join_on.clone(),
                default: node.default_exclusive_join_task.clone(),
            },
            "DO_WHILE" => Self::DoWhile(Loop::of(node, lists.body)),
            "SUB_WORKFLOW" => Self::SubWorkflow(Box::new(SubWorkflow::of(node))),
            "DURABLE_WORKFLOW" => Self::DurableWorkflow,
            "START_WORKFLOW" => Self::StartWorkflow,
            "TERMINATE" => Self::Terminate,
            "SET_VARIABLE" => Self::SetVariable,
            "WAIT" => Self::Wait,
            "HUMAN" => Self::Human,
            "YIELD" => Self::Yield,
            "NOOP" => Self::Noop,
            "INLINE" => Self::Inline,
            "LAMBDA" => Self::Lambda,
            "JSON_JQ_TRANSFORM" => Self::JsonJqTransform,
            "HTTP" => Self::Http,
            "EVENT" => Self::Event {
                sink: Template::parse_text(node.sink.as_deref().unwrap_or_default()),
            },
            "PULL_WORKFLOW_MESSAGES" => Self::PullWorkflowMessages,
            _ => Self::UserDefined,
        }
    }
}

impl Loop {
    fn of(node: &WorkflowTask, body: ListId) -> Self {
        let condition = node
            .loop_condition
            .clone()
            .filter(|condition| !is_blank(condition));
        let given = |name: &str| {
            node.input_parameters
                .get(name)
                .filter(|value| !value.is_null())
        };
        let items = node
            .items
            .as_ref()
            .filter(|items| !items.is_null() && items.as_str() != Some(""))
            .or_else(|| given("_items"));
        if let Some(items) = items {
            return Self {
                condition,
                items: Some(Template::parse(items)),
                body,
            };
        }
        // A builder of a published client writes the list as the input `items`, together with a condition that is always false. A
        // loop with any other condition may use an input of that name for itself.
        let is_generated = condition
            .as_ref()
            .is_none_or(|condition| is_never_true(condition, &node.task_reference_name));
        match given("items").filter(|_| is_generated) {
            Some(items) => Self {
                condition: None,
                items: Some(Template::parse(items)),
                body,
            },
            None => Self {
                condition,
                items: None,
                body,
            },
        }
    }

    /// Returns whether a node gives its loop a list, so that it needs no condition.
    pub(crate) fn has_items(node: &WorkflowTask) -> bool {
        Self::of(node, ListId::EMPTY).items.is_some()
    }
}

/// Returns whether a condition is the generated one that compares the iteration with zero.
fn is_never_true(condition: &str, reference: &str) -> bool {
    let condition: String = condition.split_whitespace().collect();
    let reference: String = reference.split_whitespace().collect();
    [
        format!("if($.{reference}.iteration<0){{true;}}else{{false;}}"),
        format!("if($.{reference}['iteration']<0){{true;}}else{{false;}}"),
    ]
    .contains(&condition)
}

impl SubWorkflow {
    fn of(node: &WorkflowTask) -> Self {
        let params = node.sub_workflow_param.clone().unwrap_or_default();
        let text = |text: Option<String>| text.map(|text| Template::parse_text(&text));
        let number = |value: Option<NumberOrText>| {
            value.map(|value| match value {
                NumberOrText::Number(number) => Template::Literal(number.into()),
                NumberOrText::Text(text) => Template::parse_text(&text),
            })
        };
        let version = match &params.version {
            Some(NumberOrText::Text(text)) => {
                SubWorkflowVersion::Expression(Template::parse_text(text))
            }
            Some(NumberOrText::Number(_)) | None => params
                .fixed_version()
                .map_or(SubWorkflowVersion::Latest, SubWorkflowVersion::Fixed),
        };
        let (definition, definition_template) = match params.workflow_definition {
            Some(Value::String(text)) => (None, Some(Template::parse_text(&text))),
            other => (other, None),
        };
        Self {
            name: Template::parse_text(&params.name),
            version,
            definition,
            definition_template,
            task_to_domain: params
                .task_to_domain
                .map(|domains| Template::parse(&Value::Object(domains))),
            priority: number(params.priority),
            idempotency_key: text(params.idempotency_key),
            idempotency_strategy: text(params.idempotency_strategy),
        }
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}
